/** What an increment that is to change its archive's form or hashes leaves and tells, case by case; the cuts are in the stories. */
import { readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { RecompressBackupRequest, StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import { lockFile, openArchive } from '../../agent/src/archive/index.ts';
import { backupWorkflow } from '../../agent/src/workflows/backup/backup.ts';
import { recompressWorkflow } from '../../agent/src/workflows/files/recompress.ts';
import { skipPauses } from './pauses.ts';
import { hashOfFile } from './stories/backup.ts';
import { type MadeBackup, makeBackup, perform } from './stories/perform.ts';
import { makeVm, type Vm } from './stories/vm.ts';
import { World } from './world.ts';

skipPauses();

let world: World;
let vm: Vm;
let base: MadeBackup;
let warnings: string[];
/** What happens before a step of that name, or when what is held is given back or taken again. */
let before: Record<string, () => unknown>;

beforeEach(async () => {
  [world, warnings, before] = [new World(), [], {}];
  vm = await makeVm(world, { running: true, agent: true });
  await vm.write(0, 1);
});
afterEach(() => world.remove());

const archives = () => readdirSync(world.backups).filter(name => /^[^.].*\.tar(\.zst)?$/.test(name));

async function made(options: Partial<StartBackupRequest> = {}): Promise<void> {
  base = await makeBackup(world, vm.machine.uuid, { canBeIncremental: true, ...options });
  await vm.write(1, 2);
}

/** Extends the archive; everything that it says is in `warnings`. @returns the name of the file that came of it */
async function extend(options: Partial<StartBackupRequest>, at: MadeBackup = base): Promise<MadeBackup> {
  const result = await perform(
    world,
    operationId => context =>
      backupWorkflow(
        world.dependencies,
        StartBackupRequest.fromPartial({
          ...{ operationId, domainId: vm.machine.uuid, fileId: newId(), extend: at.ref, ...options },
        }),
      )({
        ...context,
        warn: text => warnings.push(text),
        hold: {
          has: () => true,
          loosen: () => void before.loosen?.(),
          renew: async () => {
            await before.renew?.();
          },
        },
        step: async (name, work) => {
          await before[name]?.();
          return context.step(name, work);
        },
      }),
  );
  const { filename } = result.file as { filename: string };
  return { ...at, path: join(world.backups, filename), ref: { ...at.ref, filename } };
}

const statesIn = async (path: string) => {
  const archive = await openArchive(path, AbortSignal.timeout(60_000));
  await archive.close();
  return archive.manifest!.states.length;
};

test('an archive is converted once, and extended from then on; the task says so', async () => {
  await made();
  const then = await vm.view();
  const converted = await extend({ extendCompressed: true });
  expect(archives()).toEqual([converted.ref.filename]);
  expect(converted.ref.filename).toBe(`${base.ref.filename}.zst`);
  expect(await world.archived(converted.path)).toEqual(then);
  expect(warnings).toEqual([expect.stringContaining(`converted: it is ${converted.ref.filename} now`)]);
  const head = readFileSync(converted.path).subarray(0, 1000);
  await vm.write(2, 3);
  const again = await extend({ extendCompressed: true }, converted);
  expect([again.path, warnings.length, await statesIn(again.path)]).toEqual([converted.path, 1, 3]);
  expect(readFileSync(again.path).subarray(0, 1000).equals(head)).toBe(true);
  const plain = await extend({ extendCompressed: false }, again);
  expect([archives(), await statesIn(plain.path)]).toEqual([[base.ref.filename], 4]);
});

test('what is not asked for stays as it is', async () => {
  await made({ compress: true });
  await extend({});
  expect([archives(), warnings]).toEqual([[base.ref.filename], []]);
  expect(readdirSync(world.backups).some(name => name.endsWith('.sha256'))).toBe(false);
});

test('the form is told by the name as the node’s list tells it, in capitals, too', async () => {
  await made({ compress: true });
  const filename = base.ref.filename.replace(/tar.zst$/, 'TAR.ZST');
  renameSync(base.path, join(world.backups, filename));
  const capital = { ...base, path: join(world.backups, filename), ref: { ...base.ref, filename } };
  const plain = await extend({ extendCompressed: false }, capital);
  expect([plain.ref.filename, await statesIn(plain.path)]).toEqual([filename.replace(/TAR.ZST$/, 'tar'), 2]);
});

describe('an archive whose name leaves no room for what is written beside it', () => {
  let long: MadeBackup;
  const rename = async (stemBytes: number, options: Partial<StartBackupRequest> = {}) => {
    await made(options);
    const filename = `${'ä'.repeat(stemBytes / 2)}.tar`;
    long = { ...base, path: join(world.backups, filename), ref: { ...base.ref, filename } };
    renameSync(base.path, long.path);
  };

  test.each([{ extendCompressed: true }, { extendHashed: true }, {}])(
    'is not extended, and says why: %o',
    async options => {
      await rename(206);
      const refused = extend(options, long);
      await expect(refused).rejects.toMatchObject({
        msgKey: 'not_extendable',
        params: { reason: expect.stringContaining('name is too long') },
      });
      const full = await extend({ ...options, fallbackFull: true }, long);
      expect(await statesIn(full.path)).toBe(1);
    },
  );

  test('is not converted, and there is nothing to be undone', async () => {
    await rename(206);
    const request = { file: long.ref, compress: true };
    const source = { pool: world.poolRecord, path: long.path, filename: long.ref.filename };
    const plan = { source, target: world.poolRecord, directory: world.backups, keepsSource: false };
    const begun: unknown[] = [];
    const convert = perform(world, operationId => context => {
      const effects = { ...context.effects, begin: (effect: unknown) => begun.push(effect) as never };
      const asked = RecompressBackupRequest.fromPartial({ operationId, ...request });
      return recompressWorkflow(world.dependencies, asked, plan)({ ...context, effects });
    });
    await expect(convert).rejects.toMatchObject({ msgKey: 'invalid_name' });
    expect(begun).toEqual([]);
  });

  test('one that leaves just enough is extended and converted', async () => {
    await rename(194, { hashSum: true });
    const { path } = await extend({}, long);
    await vm.write(3, 4);
    const converted = await extend({ extendCompressed: true }, { ...long, path });
    expect(await statesIn(converted.path)).toBe(3);
  });
});

test('hashes that an archive has are not lost because an increment is asked for without, and that is told', async () => {
  await made({ hashSum: true });
  const { path } = await extend({ extendHashed: false });
  expect(warnings).toEqual([expect.stringContaining('has hashes')]);
  expect(readFileSync(`${path}.sha256`, 'utf8')).toContain('0002_manifest.json');
});

test('an increment that fails after the conversion leaves the archive as it was, and says so', async () => {
  await made();
  const former = hashOfFile(base.path);
  before.publish = () => {
    throw new Error('cut');
  };
  await expect(extend({ extendCompressed: true, extendHashed: true })).rejects.toThrow('cut');
  expect(warnings).toEqual([expect.stringContaining(`${base.ref.filename} is as it was`)]);
  expect([hashOfFile(base.path), archives(), await statesIn(base.path)]).toEqual([
    former,
    [base.ref.filename],
    1,
  ]);
});

test('while it is converted nobody else has it, and the other form has no name', async () => {
  await made();
  before.state = async () => {
    await expect(lockFile(base.path, 'shared')).rejects.toMatchObject({ msgKey: 'file_busy' });
    expect(archives()).toEqual([base.ref.filename]);
  };
  await extend({ extendCompressed: true });
  expect(archives()).toEqual([`${base.ref.filename}.zst`]);
});

test('one that a reader has is refused before anything is done', async () => {
  await made();
  const reader = await lockFile(base.path, 'shared');
  const refused = extend({ extendCompressed: true }).finally(() => reader.release());
  await expect(refused).rejects.toMatchObject({ msgKey: 'file_busy' });
  expect(archives()).toEqual([base.ref.filename]);
});

test('somebody who wrote to it while it was converted is not overruled', async () => {
  await made();
  before.publish = () => writeFileSync(base.path, 'more', { flag: 'a' });
  await expect(extend({ extendCompressed: true })).rejects.toMatchObject({ msgKey: 'archive_damaged' });
  expect(archives()).toContain(base.ref.filename);
});

test('damage that the conversion finds lets a full backup stand in where one may; the archive stays for who can read it', async () => {
  await made({ hashSum: true });
  const bytes = readFileSync(base.path);
  const at = bytes.indexOf('QFI\xfb', 0, 'latin1') + 70_000;
  writeFileSync(base.path, bytes.fill(bytes[at]! ^ 0xff, at, at + 1));
  await expect(extend({ extendCompressed: true })).rejects.toMatchObject({ msgKey: 'hash_mismatch' });
  const full = await extend({ extendCompressed: true, fallbackFull: true, compress: true });
  expect(archives().toSorted()).toEqual([base.ref.filename, full.ref.filename].toSorted());
  expect(await statesIn(full.path)).toBe(1);
  expect(warnings).toEqual([expect.stringContaining('A full backup is made instead')]);
});

test('a VM that lost its state meanwhile is not extended by what was planned', async () => {
  await made();
  const former = hashOfFile(base.path);
  before.recheck = () => vm.machine.states.clear();
  await expect(extend({ extendCompressed: true })).rejects.toMatchObject({ msgKey: 'not_extendable' });
  expect([hashOfFile(base.path), archives()]).toEqual([former, [base.ref.filename]]);
});

describe('how the VM is held', () => {
  const steps = ['convert', 'hash', 'recheck', 'state', 'loosen', 'renew'];
  let seen: string[];

  beforeEach(async () => {
    await made();
    seen = [];
    for (const step of steps) before[step] = () => seen.push(step);
  });

  test.each([
    ['converted', { extendCompressed: true }, ['loosen', 'convert', 'recheck', 'renew', 'state']],
    ['hashed', { extendHashed: true }, ['loosen', 'hash', 'recheck', 'renew', 'state']],
    ['extended as it is', {}, ['state']],
  ])('loosely while its archive is %s, as at the begin from then on', async (_, options, order) => {
    await extend(options);
    expect(seen).toEqual(order);
  });

  test('before it is looked at again', async () => {
    // it is shut down in the meantime, and nobody starts it from then on
    before.renew = () => world.scripted.powerOff(vm.machine);
    const { path } = await extend({ extendCompressed: true });
    const archive = await openArchive(path, AbortSignal.timeout(60_000));
    await archive.close();
    expect(archive.manifest!.states.at(-1)!.consistency).toBe('off');
  });

  test.each([{ extendCompressed: true }, { extendHashed: true }])(
    'and when it cannot be, nothing has happened: %o',
    async options => {
      const now = () => [hashOfFile(base.path), archives(), vm.tops()];
      const former = now();
      before.renew = () => {
        throw new VirtkeepError('domain_busy', { domain: 'vm', operation: newId(), kind: 'power' });
      };
      await expect(extend({ ...options, fallbackFull: true })).rejects.toMatchObject({
        msgKey: 'domain_busy',
      });
      expect(seen).not.toContain('state');
      expect(now()).toEqual(former);
      const freed = await lockFile(base.path, 'exclusive');
      await freed.release();
    },
  );

  test('also for the full backup that stands in', async () => {
    before.convert = () => {
      seen.push('convert');
      throw new VirtkeepError('archive_damaged', { path: base.path, reason: 'of the test' });
    };
    await extend({ extendCompressed: true, fallbackFull: true });
    expect(seen).toEqual(['loosen', 'convert', 'recheck', 'renew', 'state']);
  });
});
