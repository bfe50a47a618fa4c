// kill -9, cancel and a full disk at each step of dropping restore points: there is always exactly one whole archive, the old or the new one.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { type Manifest, openArchive } from '../../agent/src/archive/index.ts';
import { appendState, growingManifest, noise, writeArchive } from '../../agent/src/archive/test-kit.ts';
import { TRIM_STEPS } from '../../agent/src/workflows/restore-points/trim.ts';
import { OperationState } from '../../shared/src/gen/virtkeep/agent/v1/operation.ts';
import { newId } from '../../shared/src/ids.ts';
import { few } from '../lab/few.ts';
import { AgentAlone, fileOf, INTERRUPTED, lostAnswer, momentsOf } from './agent-alone.ts';

const signal = new AbortController().signal;
let alone: AgentAlone;

beforeAll(async () => {
  alone = await AgentAlone.start();
  mkdirSync(directory(), { recursive: true });
  for (const number of [1, 2, 3]) makeLayer(number);
});
afterAll(() => alone?.stop());

const scratch = (name: string) => join(alone.world.dir, name);
const directory = () => join(alone.world.node.pool(1).path, 'backups');
const layerOf = (number: number) => scratch(`l${number}.qcow2`);

function makeLayer(number: number): void {
  const on = number === 1 ? [] : ['-F', 'qcow2', '-b', layerOf(number - 1)];
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...on, layerOf(number), '16M']);
  const commands = ['-c', `write -P ${number} ${number}M 3M`];
  execFileSync('qemu-io', ['-f', 'qcow2', ...commands, layerOf(number)], { stdio: 'ignore' });
}

/** As increments make it: each state has a layer of its own, and all below it. */
const withLayers = (before: Manifest, members: Manifest['members']): Manifest => {
  const manifest = growingManifest(before, members);
  const layers = members
    .filter(({ kind }) => kind === 'disk' || kind === 'layer')
    .map(({ name, formerPath }, index) => ({
      ...{ member: name, stateNumber: index + 1, frozenBy: null, formerPath },
    }));
  const disk = { id: 'd', target: 'vda', bus: null, virtualSizeBytes: 16 << 20, format: 'qcow2' as const };
  const place = { formerFormat: 'qcow2', formerPath: layerOf(1), poolId: null, poolName: null, base: null };
  return { ...manifest, disks: [{ ...disk, ...place, layers }] };
};

/** An archive of three states with hashes; made once, and copied from then on. */
async function makeArchive(name: string): Promise<void> {
  if (!existsSync(scratch(name))) {
    const [path, zstd] = [scratch(name), name.endsWith('.zst')];
    const memory = { name: 's1.memory', kind: 'memory' as const, from: noise(3 << 20) };
    await writeArchive(path, [{ name: 'd.qcow2', from: layerOf(1) }, memory], { zstd, hash: true });
    for (const number of [2, 3]) {
      const layer = { name: `d_s${number}.snapshot`, from: layerOf(number) };
      await appendState(path, [layer], { tailPath: scratch('tail'), manifest: withLayers });
    }
  }
  for (const ending of ['', '.sha256'])
    copyFileSync(`${scratch(name)}${ending}`, join(directory(), `${name}${ending}`));
}

async function trim(name: string): Promise<string> {
  const operationId = newId();
  const file = { poolId: alone.world.node.pool(1).uuid, filename: name };
  await alone.backups.trim({ operationId, file, fileId: newId(), keepStates: 2 }).catch(lostAnswer);
  return operationId;
}

const sha256 = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');

/** Exactly one archive and its hash file, with which it agrees. */
async function expectOnly(name: string, states: number[]): Promise<void> {
  const files = alone.files(1).filter(found => !found.endsWith('.qcow2'));
  expect(files).toEqual([name, `${name}.sha256`]);
  const path = join(directory(), name);
  if (states.length === 3) expect(sha256(path)).toBe(sha256(scratch(name)));
  const archive = await openArchive(path, signal);
  try {
    expect(await archive.verify({ signal })).toMatchObject({ problems: [], restorableStates: states });
    const sums = archive.members.filter(
      member => member.kind !== 'manifest' || member !== archive.members.at(-1),
    );
    const lines = readFileSync(`${path}.sha256`, 'utf8').trim().split('\n');
    expect(lines).toHaveLength(archive.members.length);
    expect(lines).toEqual(expect.arrayContaining(sums.map(({ sha256: sum, name: of }) => `${sum}  ${of}`)));
  } finally {
    await archive.close();
  }
}

afterEach(() => {
  for (const name of ['a.tar', 'a.tar.zst'])
    for (const ending of ['', '.sha256']) rmSync(join(directory(), `${name}${ending}`), { force: true });
});

const moments = momentsOf(TRIM_STEPS, 'copy.mid', 'replace.before');
const late = (moment: string) => moment.startsWith('replace');

describe.each(['a.tar', 'a.tar.zst'])('%s', name => {
  const own = name === 'a.tar' ? moments : few(moments, 'copy.mid', 'replace.before');
  test.each(own)('kill -9 at %s', async moment => {
    await makeArchive(name);
    const operation = await alone.killedAt(`trim.${moment}`, () => trim(name));
    if (late(moment)) {
      expect(operation.state).toBe(OperationState.SUCCEEDED);
      expect(fileOf(operation).filename).toBe(name);
      await expectOnly(name, [2, 3]);
    } else {
      expect(operation).toMatchObject(INTERRUPTED);
      await expectOnly(name, [1, 2, 3]);
    }
  });

  test.each(own.filter(moment => !late(moment)))('cancel at %s', async moment => {
    await makeArchive(name);
    const operation = await alone.canceledAt(`trim.${moment}`, () => trim(name));
    expect(operation.state).toBe(OperationState.CANCELED);
    await expectOnly(name, [1, 2, 3]);
  });

  test.each(few(['copy.after', 'publish.after'], 'publish.after'))('a failure at %s', async moment => {
    await makeArchive(name);
    await alone.arm(`trim.${moment}=fail`);
    expect((await alone.ended(await trim(name))).state).toBe(OperationState.FAILED);
    await expectOnly(name, [1, 2, 3]);
  });

  test('past the point of no return a cancel is refused', async () => {
    await makeArchive(name);
    const file = alone.pauseFile(`late-${name}`);
    await alone.arm(`trim.replace.before=pause:${file}`);
    const id = await trim(name);
    await alone.whilePaused(file, async () => {
      await expect(alone.operations.cancel({ id })).rejects.toThrow();
    });
    expect((await alone.ended(id)).state).toBe(OperationState.SUCCEEDED);
    await expectOnly(name, [2, 3]);
  });
});
