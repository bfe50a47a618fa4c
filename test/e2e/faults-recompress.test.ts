// kill -9, cancel and SIGTERM at each step of a conversion: there is always exactly one whole archive with all states.
import { createHash, randomBytes } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { openArchive } from '../../agent/src/archive/index.ts';
import { appendState, noise, writeArchive } from '../../agent/src/archive/test-kit.ts';
import { RECOMPRESS_STEPS } from '../../agent/src/workflows/files/recompress.ts';
import { type Operation, OperationState } from '../../shared/src/gen/virtkeep/agent/v1/operation.ts';
import { newId } from '../../shared/src/ids.ts';
import { few } from '../lab/few.ts';
import { waitFor } from '../lab/run.ts';
import { AgentAlone, fileOf, INTERRUPTED, lostAnswer, momentsOf } from './agent-alone.ts';

const MiB = 1024 * 1024;
const signal = new AbortController().signal;
let alone: AgentAlone;
let content: string;

beforeAll(async () => {
  alone = await AgentAlone.start();
  for (const pool of [0, 1]) mkdirSync(directory(pool), { recursive: true });
  writeFileSync(scratch('disk'), Buffer.concat([noise(20 * MiB), randomBytes(4 * MiB)]));
  writeFileSync(scratch('layer'), noise(5 * MiB, 2));
});
afterAll(() => alone?.stop());

const scratch = (name: string) => join(alone.world.dir, name);
const directory = (pool: number) => join(alone.world.node.pool(pool).path, 'backups');

/** An archive of two states, with hashes, in the second pool. It is made once, and copied from then on. */
async function makeArchive(name: string): Promise<string> {
  const path = join(directory(1), name);
  const endings = ['', '.sha256'];
  if (!existsSync(scratch(name))) {
    await writeStates(scratch(name));
    content = await contentOf(scratch(name));
  }
  for (const ending of endings) copyFileSync(`${scratch(name)}${ending}`, `${path}${ending}`);
  return path;
}

async function writeStates(path: string): Promise<void> {
  const zstd = path.endsWith('.zst');
  await writeArchive(path, [{ name: 'd.qcow2', from: scratch('disk') }], { zstd, hash: true });
  const tailPath = scratch('tail');
  await appendState(path, [{ name: 'd_s.snapshot', from: scratch('layer') }], { tailPath });
}

/** Names and hashes of all members, after all of it was verified. */
async function contentOf(path: string): Promise<string> {
  const archive = await openArchive(path, signal);
  try {
    expect(await archive.verify({ signal })).toMatchObject({ problems: [], restorableStates: [1, 2] });
    const members = archive.members.map(({ name, sha256, dataOffset }) => [name, sha256, dataOffset]);
    return JSON.stringify([
      members,
      createHash('sha256')
        .update(readFileSync(`${path}.sha256`))
        .digest('hex'),
    ]);
  } finally {
    await archive.close();
  }
}

const request = (name: string, changes: object = {}) => ({
  operationId: newId(),
  file: { poolId: alone.world.node.pool(1).uuid, filename: name },
  fileId: newId(),
  compress: !name.endsWith('.zst'),
  ...changes,
});

/** Starts a conversion; an agent that dies at once may take its answer with it. */
async function convert(name: string, changes: object = {}): Promise<string> {
  const asked = request(name, changes);
  await alone.backups.recompress(asked).catch(lostAnswer);
  return asked.operationId;
}

/** Exactly one archive, whole, the old one or the new one. */
async function expectOnly(name: string, pool = 1): Promise<void> {
  const files = [0, 1].map(index => alone.files(index).filter(found => !found.endsWith('.qcow2')));
  const wanted = [[], []] as string[][];
  wanted[pool] = [name, `${name}.sha256`];
  expect(files).toEqual(wanted);
  expect(await contentOf(join(directory(pool), name))).toBe(content);
}

afterEach(() => {
  for (const pool of [0, 1])
    for (const name of ['a.tar', 'a.tar.zst', 'large.tar', 'large.tar.zst'])
      for (const ending of ['', '.sha256'])
        rmSync(join(directory(pool), `${name}${ending}`), { force: true });
});

const moments = momentsOf(RECOMPRESS_STEPS, 'copy.mid', 'remove.before');
const late = (moment: string) => moment.startsWith('remove');

describe.each([
  ['a.tar', 'a.tar.zst'],
  ['a.tar.zst', 'a.tar'],
])('%s to %s', (from, to) => {
  const own = from === 'a.tar' ? moments : few(moments, 'copy.mid', 'remove.before');
  test.each(own)('kill -9 at %s', async moment => {
    await makeArchive(from);
    const operation = await alone.killedAt(`recompress.${moment}`, () => convert(from));
    if (late(moment)) {
      expect(operation.state).toBe(OperationState.SUCCEEDED);
      expect(fileOf(operation).filename).toBe(to);
      await expectOnly(to);
    } else {
      expect(operation).toMatchObject(INTERRUPTED);
      await expectOnly(from);
    }
  });

  test.each(own.filter(moment => !late(moment)))('cancel at %s', async moment => {
    await makeArchive(from);
    const operation = await alone.canceledAt(`recompress.${moment}`, () => convert(from));
    expect(operation.state).toBe(OperationState.CANCELED);
    await expectOnly(from);
  });

  test('past the point of no return a cancel is refused', async () => {
    await makeArchive(from);
    const file = alone.pauseFile(`late-${from}`);
    await alone.arm(`recompress.remove.before=pause:${file}`);
    const id = await convert(from);
    await alone.whilePaused(file, async () => {
      await expect(alone.operations.cancel({ id })).rejects.toThrow();
    });
    expect((await alone.ended(id)).state).toBe(OperationState.SUCCEEDED);
    await expectOnly(to);
  });
});

test('SIGTERM in the middle of the copy leaves the old archive alone', async () => {
  await makeArchive('a.tar');
  const file = alone.pauseFile('term');
  await alone.arm(`recompress.copy.mid=pause:${file}`);
  const id = await convert('a.tar');
  await alone.whilePaused(file, () => alone.agent.daemon.stop());
  await expectOnly('a.tar');
  await alone.up();
  expect((await alone.ended(id)).error).toMatchObject({ msgKey: 'interrupted' });
});

test.each(['copy.mid', 'publish.after', 'remove.before'])(
  'into another pool, kill -9 at %s',
  async moment => {
    await makeArchive('a.tar');
    const { state }: Operation = await alone.killedAt(`recompress.${moment}`, () =>
      convert('a.tar', { poolId: alone.world.node.pool(0).uuid }),
    );
    expect(state).toBe(late(moment) ? OperationState.SUCCEEDED : OperationState.FAILED);
    await (late(moment) ? expectOnly('a.tar.zst', 0) : expectOnly('a.tar'));
  },
);

test('a download over the wire holds the file until it is read or given up', async () => {
  const path = await makeArchive('a.tar');
  await alone.arm('');
  const ask = { file: { poolId: alone.world.node.pool(1).uuid, filename: 'a.tar' } };
  const hash = createHash('sha256');
  let largest = 0;
  for await (const { data } of alone.backups.download(ask)) {
    hash.update(data);
    largest = Math.max(largest, data.length);
  }
  expect(largest).toBeLessThanOrEqual(MiB);
  expect(hash.digest('hex')).toBe(createHash('sha256').update(readFileSync(path)).digest('hex'));
  // A reader that stops taking chunks stops the agent, and holds the file; one that goes away gives it back. What is on its way, 16 pieces
  // at either end, is not read any more.
  const large = join(directory(1), 'large.tar');
  writeFileSync(scratch('large'), noise(96 * MiB));
  await writeArchive(large, [{ name: 'd.qcow2', from: scratch('large') }]);
  const file = { ...ask.file, filename: 'large.tar' };
  const slow = alone.backups.download({ file })[Symbol.asyncIterator]();
  await slow.next();
  await expect(alone.backups.recompress(request('large.tar'))).rejects.toThrow(/used by operation/);
  await slow.return!(undefined);
  const started = await waitFor(
    'the file to be free',
    () => convert('large.tar').catch(() => undefined),
    120_000,
  );
  expect((await alone.ended(started)).state).toBe(OperationState.SUCCEEDED);
  expect(alone.files(1).sort()).toEqual(['a.tar', 'a.tar.sha256', 'large.tar.zst']);
});
