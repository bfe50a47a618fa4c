import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { isVirtnbdMain, isVirtnbdPart, virtnbdDataName } from '@virtkeep/shared/virtnbd-names';
import { openVirtnbd } from '../index.ts';
import { scratch, signal } from '../test-kit.ts';
import { statesOf, type VirtnbdDataFile } from './states.ts';
import { dataFile, definition, put } from './test-kit.ts';

const dir = scratch();
afterAll(dir.remove);
let made = 0;
/** A directory of its own. */
function directory(): string {
  made += 1;
  const path = dir.at(`set${made}`);
  mkdirSync(path);
  return path;
}

const MAIN = 'vmconfig.virtnbdbackup.0.xml';
const [ONE, TWO] = ['virtnbdbackup.1', 'virtnbdbackup.2'];
const inc = (checkpoint: string, parent: string, more = {}) => dataFile({ checkpoint, parent, ...more });

/** As virtnbdbackup 2.28 writes 3 MiB of a raw disk with --compress, each piece to its place. */
const PACKED = Buffer.concat([
  Buffer.from('04224d185c400000300000000000fc00000180', 'hex'),
  Buffer.alloc(1024, 'x'),
]);
const FULL = { [MAIN]: definition('first'), 'vda.full.data': dataFile() };
const CHAIN = {
  ...FULL,
  [`vmconfig.${ONE}.xml`]: definition('second'),
  [`vda.inc.${ONE}.data`]: inc(ONE, 'virtnbdbackup.0', { meta: { date: '2026-11-21T01:00:00' } }),
  [`vda.inc.${TWO}.data`]: inc(TWO, ONE, { meta: { date: '2026-11-22T01:00:00' } }),
  'vda.diff.1795591098.data': inc(TWO, ONE, { meta: { date: '2026-11-21T09:00:00' } }),
};

async function opened(files: Record<string, Buffer | string>, main = MAIN) {
  const path = directory();
  put(path, files);
  return await openVirtnbd(join(path, main), signal);
}
const faultOf = (files: Record<string, Buffer | string>) =>
  opened(files).then(
    () => 'none',
    (error: { msgKey: string; params: { reason?: string } }) => `${error.msgKey}: ${error.params.reason}`,
  );

test('names', () => {
  expect(virtnbdDataName('sda.full.data')).toEqual({ target: 'sda', kind: 'full', ident: '' });
  expect(virtnbdDataName('vdb.inc.virtnbdbackup.12.data')).toMatchObject({
    kind: 'inc',
    ident: 'virtnbdbackup.12',
  });
  expect(virtnbdDataName('vdb.diff.1795591098.data')).toMatchObject({ kind: 'diff', ident: '1795591098' });
  for (const name of [
    'sda.full.data.partial',
    'a/b.full.data',
    '../sda.full.data',
    'sda.inc.x,y.data',
    'data',
  ])
    expect(virtnbdDataName(name)).toBeUndefined();
  expect(['web/vmconfig.virtnbdbackup.0.xml', 'vmconfig.copy.xml', 'web.xml'].map(isVirtnbdMain)).toEqual([
    true,
    true,
    false,
  ]);
  const parts = [
    'w/vmconfig.virtnbdbackup.1.xml',
    'w/checkpoints/virtnbdbackup.0.xml',
    'w/vmconfig.1795591098.xml',
  ];
  expect([...parts, MAIN, 'vmconfig.xml'].map(isVirtnbdPart)).toEqual([true, true, true, false, false]);
});

test('each restore point is the files that it stands upon, and its definition', async () => {
  const backup = await opened(CHAIN);
  const names = backup.states.map(({ name, disks }) => [name, disks.get('vda')!.map(file => file.name)]);
  const full = 'vda.full.data';
  expect(names).toEqual([
    ['virtnbdbackup.0', [full]],
    [ONE, [full, `vda.inc.${ONE}.data`]],
    ['diff.1795591098', [full, `vda.inc.${ONE}.data`, 'vda.diff.1795591098.data']],
    [TWO, [full, `vda.inc.${ONE}.data`, `vda.inc.${TWO}.data`]],
  ]);
  const text = (state: number) => backup.readDefinition(backup.states[state]);
  expect([await text(0), await text(1), await text(3)]).toEqual(['first', 'second', 'first'].map(definition));
  await backup.close();
});

test('a differential backup of several disks is one restore point, whose files bear the second in which each was begun', async () => {
  const diff = inc(ONE, 'virtnbdbackup.0');
  const ofOther = inc(ONE, 'virtnbdbackup.0', { target: 'vdb' });
  const backup = await opened({
    ...FULL,
    'vdb.full.data': dataFile({ target: 'vdb' }),
    'vda.diff.1795591098.data': diff,
    'vdb.diff.1795591099.data': ofOther,
    'vmconfig.1795591100.xml': definition('second'),
    // one disk after the other, each of which took long
    'vda.diff.1795592000.data': diff,
    'vdb.diff.1795595000.data': ofOther,
    'vmconfig.1795595001.xml': definition('third'),
    'vda.1795595001.qcow.json': '{}',
    'vdb.1795595002.qcow.json': '{}',
    // of a run that broke off, and of one of a single disk
    'vda.diff.1795596000.data': diff,
    'vdb.diff.1795597000.data': ofOther,
    'vmconfig.1795597001.xml': definition('fourth'),
    'vdb.1795597001.qcow.json': '{}',
    // the same, by a version that writes no descriptions
    'vda.diff.1795597500.data': diff,
    'vdb.diff.1795598000.data': ofOther,
    'vmconfig.1795598001.xml': definition('fifth'),
    // its definition is not there: nobody knows that the two are of one run
    'vda.diff.1795599000.data': diff,
    'vdb.diff.1795599001.data': ofOther,
  });
  const found = backup.states.map(({ name, disks, lacking }) => [
    name,
    ...[...disks.values()].map(files => files.at(-1)!.name),
    ...lacking,
  ]);
  expect(found.toSorted()).toEqual([
    ['diff.1795591100', 'vda.diff.1795591098.data', 'vdb.diff.1795591099.data'],
    ['diff.1795595001', 'vda.diff.1795592000.data', 'vdb.diff.1795595000.data'],
    ['diff.1795596000', 'vda.diff.1795596000.data', 'vdb'],
    ['diff.1795597001', 'vdb.diff.1795597000.data', 'vda'],
    ['diff.1795597500', 'vda.diff.1795597500.data', 'vdb'],
    ['diff.1795598001', 'vdb.diff.1795598000.data', 'vda'],
    ['diff.1795599000', 'vda.diff.1795599000.data', 'vdb'],
    ['diff.1795599001', 'vdb.diff.1795599001.data', 'vda'],
    ['virtnbdbackup.0', 'vda.full.data', 'vdb.full.data'],
  ]);
  const second = backup.states.find(({ name }) => name === 'diff.1795591100');
  expect(await backup.readDefinition(second)).toBe(definition('second'));
  await backup.close();
});

test('what an increment of a VM that was off adds is a state of its own', async () => {
  const backup = await opened({
    ...FULL,
    'vda.inc.virtnbdbackup.0.data': inc('virtnbdbackup.0', 'virtnbdbackup.0'),
  });
  expect(backup.states.map(({ name }) => name)).toEqual(['virtnbdbackup.0', 'virtnbdbackup.0.offline']);
  await backup.close();
});

test('a disk without data at a restore point is named there; a raw one is read as it is', async () => {
  const backup = await opened({ ...CHAIN, 'vdb.full.data': Buffer.alloc(1024, 'x') });
  expect(backup.states.map(({ lacking }) => lacking)).toEqual([[], ['vdb'], ['vdb'], ['vdb']]);
  expect(backup.states[0]!.disks.get('vdb')).toMatchObject([{ header: null, sizeBytes: 1024 }]);
  await backup.close();
});

test('a raw disk that a guest wrote a file of lz4 to is read as it is', async () => {
  const other = Buffer.from(PACKED);
  other.writeBigUInt64LE(1_000_001n, 6);
  const backup = await opened({ ...CHAIN, 'vdb.full.data': other });
  expect(backup.states[0]!.disks.get('vdb')).toMatchObject([{ header: null }]);
  await backup.close();
});

test('one without data has no restore points', async () => {
  const backup = await opened({ [MAIN]: definition('x'), 'sda.full.data.partial': 'half' });
  expect([backup.states, backup.warnings]).toEqual([[], [expect.stringMatching(/not complete/)]]);
  await backup.close();
});

describe('refused', () => {
  const meta = (changes: Record<string, unknown>) => ({
    ...FULL,
    'vda.full.data': dataFile({ meta: changes }),
  });
  test.each<[string, Record<string, Buffer | string>, RegExp]>([
    ['another name of the disk', meta({ diskName: '../../etc/x' }), /is of the disk/],
    ['a name that is none', meta({ diskName: ['vda'] }), /is of the disk|none/],
    ['another format', meta({ diskFormat: 'raw' }), /format/],
    ['a size that is none', meta({ virtualSize: '1' }), /size/],
    ['an impossible size', meta({ virtualSize: 2 ** 60 }), /size/],
    ['more data than the disk has', meta({ dataSize: 1_048_577 }), /length/],
    ['a checkpoint with a comma', meta({ checkpointName: 'a,b' }), /checkpoint/],
    ['another packing', meta({ compressed: 2, compressionMethod: 'sh' }), /packed/],
    ['another version', meta({ streamVersion: 3 }), /version/],
    ['no time', meta({ date: 'yesterday' }), /written/],
    ['no JSON', { ...FULL, 'vda.full.data': 'meta 0000000000000000 0000000000000004\r\nnope\r\n' }, /JSON/],
    [
      'an endless header',
      { ...FULL, 'vda.full.data': 'meta 0000000000000000 ffffffffffffffff\r\n' },
      /length/,
    ],
    ['half a header', { ...FULL, 'vda.full.data': 'meta 0000000000000000 0000000000000400\r\n{' }, /cut off/],
    [
      'no full backup',
      { [MAIN]: definition('x'), [`vda.inc.${ONE}.data`]: inc(ONE, 'virtnbdbackup.0') },
      /no full/,
    ],
    ['two of them', { ...FULL, 'vda.copy.data': dataFile() }, /two full/],
    ['a gap', { ...FULL, [`vda.inc.${TWO}.data`]: inc(TWO, ONE) }, /is not there/],
    [
      'a disk that grew',
      { ...FULL, [`vda.inc.${ONE}.data`]: inc(ONE, 'virtnbdbackup.0', { virtualSize: 2_097_152 }) },
      /another size/,
    ],
    [
      'an increment under another name',
      { ...FULL, [`vda.inc.${ONE}.data`]: inc(TWO, 'virtnbdbackup.0') },
      /checkpoint/,
    ],
    [
      'a raw disk of packed pieces',
      { ...FULL, 'vdb.full.data': PACKED },
      /vdb\.full\.data.*without --compress/,
    ],
    [
      'one that begins with a hole',
      { ...FULL, 'vdb.full.data': Buffer.concat([Buffer.alloc(2 * MiB + 65_536), PACKED]) },
      /without --compress/,
    ],
    ['a raw increment', { ...FULL, [`vda.inc.${ONE}.data`]: 'x' }, /no increment/],
  ])('%s', async (_, files, reason) => {
    const fault = await faultOf(files);
    expect(fault).toMatch(/^appliance_invalid/);
    expect(fault).toMatch(reason);
  });

  test('a link, which is not followed', async () => {
    const path = directory();
    put(path, { [MAIN]: definition('x') });
    writeFileSync(join(path, 'other'), dataFile());
    symlinkSync(join(path, 'other'), join(path, 'vda.full.data'));
    await expect(openVirtnbd(join(path, MAIN), signal)).rejects.toMatchObject({ msgKey: 'not_a_file' });
  });
});

test('hundreds of thousands of definitions and descriptions are each put to their run at once', () => {
  const header = {
    ...{ checkpoint: 'virtnbdbackup.0', parent: '', virtualSizeBytes: 1, written: new Date(0) },
  } as NonNullable<VirtnbdDataFile['header']>;
  const file = (kind: 'full' | 'diff', ident: string): VirtnbdDataFile => ({
    ...{
      target: 'vda',
      kind,
      ident,
      name: `vda.${kind}.data`,
      path: '/x',
      sizeBytes: 1,
      changed: new Date(0),
    },
    header: kind === 'full' ? header : { ...header, parent: 'virtnbdbackup.0', written: new Date(1) },
  });
  const first = 1_000_000_000;
  const definitions = Array.from({ length: 400_000 }, (_, at) => String(first + 10 * at));
  const described = Array.from({ length: 400_000 }, () => ({ target: 'vda', second: first + 3 }));
  const states = statesOf([file('full', ''), file('diff', String(first - 5))], { definitions, described });
  expect(states.map(({ name }) => name)).toEqual(['virtnbdbackup.0', `diff.${first}`]);
});
