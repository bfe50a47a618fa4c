// Backups out of a directory that virtnbdbackup has written of a running VM, and a VM out of those, by an agent that is killed and cancelled.
import { execFileSync, spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import { CONVERT_STEPS } from '../../../agent/src/workflows/import/convert.ts';
import { AgentAlone, fileOf, INTERRUPTED, lostAnswer, momentsOf } from '../../e2e/agent-alone.ts';
import { few } from '../../lab/few.ts';
import { Guest } from '../../lab/guest.ts';
import { definePool, type Pool } from '../../lab/node.ts';
import { waitFor } from '../../lab/run.ts';
import { SmallDisk } from '../../lab/small-disk.ts';

const MAIN = 'vmconfig.virtnbdbackup.0.xml';
const SET = `web/${MAIN}`;
const COPIES = ['packed/vmconfig.copy.xml', 'raw/vmconfig.copy.xml'];
const SIZE = 24 * MiB;
const FIRST = randomBytes(3 * MiB);

let small: SmallDisk;
let alone: AgentAlone;
let tight: Pool;
let guest: Guest;
/** By set and state the bytes of its disks. */
const frozen = new Map<string, Record<string, Buffer>>();

const pool = () => alone.world.node.pool(1);
const directory = () => join(pool().path, 'backups');
const SETS = ['web', 'packed', 'raw', 'evil', 'bent'];
const made = () => readdirSync(directory()).filter(name => !SETS.includes(name));
const diskPath = (target: string) => join(alone.world.node.pool(0).path, `web-${target}.img`);

function rawOf(path: string, format = 'qcow2'): Buffer {
  const raw = join(alone.world.dir, 'raw');
  execFileSync('qemu-img', ['convert', '-U', '-f', format, '-O', 'raw', path, raw]);
  return readFileSync(raw);
}

/** What a guest would write: through QEMU, so that it is noted as changed. */
async function write(target: string, pattern: number, where: string): Promise<void> {
  const text = await alone.world.node.virsh('qemu-monitor-command', guest.name, '{"execute":"query-block"}');
  const { return: blocks } = JSON.parse(text) as {
    return: { qdev: string; inserted?: { image: { filename: string } } }[];
  };
  const { qdev } = blocks.find(({ inserted }) => inserted?.image.filename === diskPath(target))!;
  // what QEMU keeps in its caches the copy of the image would not have
  for (const command of [`write -P ${pattern} ${where}`, 'flush']) {
    const line = `qemu-io -d ${qdev} "${command}"`;
    expect(await alone.world.node.virsh('qemu-monitor-command', guest.name, '--hmp', line)).toBe('');
  }
}

/** Runs the tool, and keeps what the disks are then. */
async function backUp(set: string, level: string, state: string, ...more: string[]): Promise<void> {
  const argv = ['virtnbdbackup', '-d', guest.name, '-l', level, '-o', join(directory(), set), ...more];
  await alone.world.node.runInside(argv, { timeoutMs: 120_000 });
  const raw = more.includes('--raw') ? { vdc: rawOf(diskPath('vdc'), 'raw') } : {};
  frozen.set(`${set} ${state}`, { vda: rawOf(diskPath('vda')), vdb: rawOf(diskPath('vdb')), ...raw });
}

beforeAll(async () => {
  small = await SmallDisk.mount(128);
  alone = await AgentAlone.start();
  tight = { name: 'small', uuid: randomUUID(), path: small.path };
  await definePool(alone.world.node, tight);
  await alone.restart();
  mkdirSync(directory(), { recursive: true });
  const disks = [];
  for (const [target, format] of [
    ['vda', 'qcow2'],
    ['vdb', 'qcow2'],
    ['vdc', 'raw'],
  ] as const) {
    const [path, raw] = [diskPath(target), join(alone.world.dir, 'raw')];
    writeFileSync(raw, Buffer.concat([FIRST, Buffer.alloc(SIZE - FIRST.length)]));
    execFileSync('qemu-img', ['convert', '-f', 'raw', '-O', format, raw, path]);
    disks.push({ path, format });
  }
  guest = await alone.world.defineTiny({ name: 'web', disks, idle: true });
  await guest.start();
  await backUp('web', 'full', 'virtnbdbackup.0');
  await write('vda', 1, '2M 3M');
  await write('vdb', 2, '0 64k');
  await backUp('web', 'inc', 'virtnbdbackup.1');
  await write('vda', 3, '20M 1M');
  await backUp('web', 'diff', 'diff');
  await write('vda', 0, '2M 1M');
  await write('vda', 4, '4M 512');
  await backUp('web', 'inc', 'virtnbdbackup.2');
  await backUp('raw', 'copy', 'copy', '--raw');
  await backUp('packed', 'copy', 'copy', '-z');
});
afterAll(async () => {
  await alone?.stop();
  await small?.unmount();
});
afterEach(() => {
  for (const name of made()) rmSync(join(directory(), name), { recursive: true });
});

async function convert(filename: string, request: object = {}): Promise<string> {
  const operationId = newId();
  const file = { poolId: pool().uuid, filename };
  await alone.backups.convert({ operationId, fileId: newId(), file, ...request }).catch(lostAnswer);
  return operationId;
}

const restorePointsOf = (filename: string) =>
  alone.backups.show({ file: { poolId: pool().uuid, filename } }).then(({ configuration }) => configuration!);

async function scanned() {
  const operationId = newId();
  await alone.pools.scan({ operationId, poolId: pool().uuid });
  return resultOf(await alone.heard(operationId), 'scanPool').files;
}

test('a directory is one file, with the name of its VM, its size and its restore points', async () => {
  const files = await scanned();
  expect(files.map(({ filename }) => filename)).toEqual([...COPIES, SET]);
  const web = files.at(-1)!;
  expect(web).toMatchObject({
    type: 'virtnbdbackup',
    domainName: 'web',
    domainId: await guest.uuid(),
    damage: '',
  });
  expect(Number(web.size)).toBeGreaterThan(3 * MiB);
  expect(web.states.map(({ number, name }) => [number, name])).toEqual([
    [1, 'virtnbdbackup.0'],
    [2, 'virtnbdbackup.1'],
    [3, expect.stringMatching(/^diff\.\d+$/)],
    [4, 'virtnbdbackup.2'],
  ]);
  expect(web.created).toEqual(web.states[0]!.created);
});

test('what grows is seen anew', async () => {
  const [name, aside] = ['vda.inc.virtnbdbackup.2.data', join(alone.world.dir, 'aside')];
  renameSync(join(directory(), 'web', name), aside);
  renameSync(join(directory(), 'web', name.replace('vda', 'vdb')), `${aside}.b`);
  expect((await scanned()).at(-1)!.states).toHaveLength(3);
  renameSync(aside, join(directory(), 'web', name));
  renameSync(`${aside}.b`, join(directory(), 'web', name.replace('vda', 'vdb')));
  expect((await scanned()).at(-1)!.states).toHaveLength(4);
});

test('its VM is shown, and is not removed', async () => {
  const file = { poolId: pool().uuid, filename: SET };
  const shown = await alone.backups.show({ file, state: '2' });
  expect(shown.configuration).toMatchObject({
    name: 'web',
    disks: [{ targetDev: 'vda' }, { targetDev: 'vdb' }, { targetDev: 'vdc' }],
  });
  expect(shown.signature!.trust).toBe('foreign');
  await expect(alone.backups.show({ file, state: '9' })).rejects.toThrow(/no state 9/);
  await expect(alone.backups.delete({ operationId: newId(), fileId: newId(), file })).rejects.toThrow(
    /is a directory/,
  );
  expect((await restorePointsOf(SET)).machine).not.toBe('');
});

test.each<[string, string, object]>([
  [SET, 'virtnbdbackup.0', {}],
  [SET, 'virtnbdbackup.1', { compress: true }],
  [SET, '3', { virtio: true }],
  [SET, '', { hashSum: true }],
  [COPIES[0]!, 'copy', {}],
  [COPIES[1]!, 'copy', {}],
])('%s at %j becomes a backup, and that a VM with the same disks', async (filename, state, request) => {
  const operation = await alone.heard(await convert(filename, { ...request, state }));
  const set = filename.split('/')[0]!;
  const name = state === '3' ? 'diff' : state || (set === 'web' ? 'virtnbdbackup.2' : 'copy');
  const expected = frozen.get(`${set} ${name}`)!;
  const { filename: archive } = fileOf(operation);
  expect(made().filter(file => !file.endsWith('.sha256'))).toEqual([archive]);
  const id = await alone.startRestore(archive, { domainId: newId(), allowForeign: true, name: 'again' });
  const { name: domain, disks } = resultOf(await alone.heard(id), 'restore');
  expect(disks.map(({ targetDev }) => targetDev)).toEqual(Object.keys(expected));
  for (const { path, targetDev } of disks) expect(rawOf(path).equals(expected[targetDev]!)).toBe(true);
  const xml = await new Guest(alone.world.node, domain).xml(true);
  expect(xml).toContain("<driver name='qemu' type='qcow2'");
  await alone.world.node.virsh('undefine', domain);
  for (const { path } of disks) rmSync(path);
});

/** A copy of the set, changed by hand. */
function tampered(set: string, change: (at: (name: string) => string) => void): string {
  const path = join(directory(), set);
  rmSync(path, { recursive: true, force: true });
  cpSync(join(directory(), 'web'), path, { recursive: true, preserveTimestamps: true });
  change(name => join(path, name));
  return `${set}/${MAIN}`;
}

test('no file of the host is read or made because a foreign file names it', async () => {
  const secret = join(alone.world.dir, 'secret-of-the-host');
  const planted = join(alone.world.dir, 'planted');
  writeFileSync(secret, FIRST);
  const filename = tampered('evil', at => {
    for (const number of [0, 1, 2]) {
      const config = at(`vmconfig.virtnbdbackup.${number}.xml`);
      const text = readFileSync(config, 'utf8')
        .replace(/<os>/, `<os><nvram>${planted}</nvram><kernel>${secret}</kernel>`)
        .replace(/<loader.*<\/loader>/, '')
        .replaceAll(diskPath('vda'), secret);
      expect(text).toContain(secret);
      writeFileSync(config, text);
      const image = { 'cluster-size': `65536,backing_file=${secret},backing_fmt=raw` };
      writeFileSync(at(`vda.virtnbdbackup.${number}.qcow.json`), JSON.stringify(image));
    }
    writeFileSync(at('planted'), 'planted');
  });
  const log = join(alone.world.dir, 'opened.log');
  const watch = ['-f', '-s', '4096', '-e', 'trace=open,openat,openat2,creat', '-o', log];
  const strace = spawn('strace', [...watch, '-p', String(alone.agent.daemon.pid)], { stdio: 'ignore' });
  try {
    await waitFor('strace', () => existsSync(log) && readFileSync(log).length > 0, 60_000);
    const operation = await alone.heard(await convert(filename));
    expect(JSON.stringify(operation.warnings)).toMatch(/os\/kernel/);
  } finally {
    const end = new Promise(resolve => strace.once('close', resolve));
    strace.kill();
    await end;
  }
  const opened = readFileSync(log, 'utf8');
  expect(opened).toMatch(/virtnbd\/?"|vda\.0\.full\.data/);
  expect(opened).not.toContain(secret);
  expect(opened).not.toContain(planted);
  expect(existsSync(planted)).toBe(false);
});

describe('what is not as the tool writes it is refused, and nothing is left', () => {
  const header = (at: (name: string) => string, file: string, from: string, to: string) => {
    const bytes = readFileSync(at(file));
    const text = bytes.toString('latin1').replace(from, to.padEnd(from.length));
    writeFileSync(at(file), Buffer.from(text, 'latin1'));
  };
  const cut = (at: (name: string) => string, file: string) => {
    const bytes = readFileSync(at(file));
    writeFileSync(at(file), bytes.subarray(0, bytes.length - 4_096));
  };
  test.each<[string, string, RegExp, (at: (name: string) => string) => void]>([
    [
      'a name that leads elsewhere',
      'appliance_invalid',
      /of the disk/,
      at => header(at, 'vda.full.data', '"vda"', '"../"'),
    ],
    ['another format', 'appliance_invalid', /format/, at => header(at, 'vda.full.data', '"qcow2"', '"raw"')],
    [
      'a checkpoint that is none',
      'appliance_invalid',
      /checkpoint/,
      at => header(at, 'vda.full.data', '"virtnbdbackup.0"', '"a,b"'),
    ],
    [
      'an increment upon what is not there',
      'appliance_invalid',
      /virtnbdbackup\.1, which is not there/,
      at => rmSync(at('vda.inc.virtnbdbackup.1.data')),
    ],
    [
      'data that end too early',
      'foreign_disk_invalid',
      /data are damaged, or end too early/,
      at => cut(at, 'vda.full.data'),
    ],
    [
      'data of no disk',
      'appliance_invalid',
      /no disk vdz/,
      at => cpSync(at('vda.full.data'), at('vdz.full.data')) ?? header(at, 'vdz.full.data', '"vda"', '"vdz"'),
    ],
  ])('%s', async (_, msgKey, detail, change) => {
    const filename = tampered('bent', change);
    const request = detail.source.includes('vdz') ? { state: '1' } : {};
    const operation = await alone.ended(await convert(filename, request));
    expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey } });
    expect(operation.error!.detail).toMatch(detail);
    expect(made()).toEqual([]);
  });
});

describe('what stops it leaves nothing', () => {
  test.each(few(momentsOf(CONVERT_STEPS, 'read.mid'), 'read.mid'))(
    'kill -9 of the agent at %s',
    async moment => {
      const operation = await alone.killedAt(`convert_backup.${moment}`, () => convert(SET));
      expect(operation).toMatchObject(INTERRUPTED);
      expect(made()).toEqual([]);
    },
  );

  test.each(few(['check.after', 'read.mid', 'read.after', 'copy.after'], 'read.mid'))(
    'cancel at %s',
    async moment => {
      const operation = await alone.canceledAt(`convert_backup.${moment}`, () => convert(SET));
      expect(operation.state).toBe(OperationState.CANCELED);
      expect(made()).toEqual([]);
    },
  );

  test.each(few(['check.after', 'read.mid'], 'read.mid'))('a disk that runs full at %s', async moment => {
    const point = `convert_backup.${moment}`;
    const pause = alone.pauseFile(point);
    await alone.arm(`${point}=pause:${pause}`);
    const id = await convert(SET, { poolId: tight.uuid });
    await alone.whilePaused(pause, async () => small.fill(1));
    const operation = await alone.ended(id);
    expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'disk_full' } });
    await alone.arm('');
    const left = join(small.path, 'backups');
    expect(existsSync(left) ? readdirSync(left) : []).toEqual([]);
    small.free();
  });
});
