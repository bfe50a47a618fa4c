import { existsSync, mkdirSync, mkdtempSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { removePath } from '@virtkeep/shared/files';
import {
  isThere,
  type KnownPlace,
  knownPlaces,
  MARKER,
  PathGate,
  type PoolRecord,
  rememberPlaces,
} from '../../pools/index.ts';
import { samplePool } from '../../pools/sample-pool.ts';
import type { Effect } from '../effect.ts';
import { undoWhenThere, type WorldDependencies } from './world.ts';

const signal = new AbortController().signal;
let directory: string;
let pool: string;
let stored: Map<string, unknown>;
let pools: PoolRecord[];
let world: WorldDependencies;
let connected: boolean;
let definitions: Record<string, string>;
let undone: string[];

const place = (change: Partial<KnownPlace> = {}): KnownPlace => ({
  id: 'id-nfs',
  name: 'nfs',
  path: pool,
  mountPoint: '/srv/nfs',
  marker: true,
  ...change,
});

beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'virtkeep-world-')));
  pool = join(directory, 'nfs');
  mkdirSync(join(pool, 'backups'), { recursive: true });
  writeFileSync(join(pool, MARKER), '');
  stored = new Map();
  connected = true;
  pools = [samplePool('nfs', { path: pool })];
  definitions = {};
  undone = [];
  world = {
    connected: () => connected,
    libvirt: () =>
      ({
        domain: (id: string) => ({ xml: async () => definitions[id] ?? '' }),
      }) as unknown as Libvirt,
    pools: async () => pools,
    settings: { get: key => stored.get(key), set: (key, value) => void stored.set(key, value) },
    gate: new PathGate(60_000),
    untilController: async () => {},
  };
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

/** What is mounted goes away: an empty directory is left. */
function unmount(): void {
  renameSync(pool, join(directory, 'elsewhere'));
  mkdirSync(pool);
}

function mount(): void {
  rmSync(pool, { recursive: true });
  renameSync(join(directory, 'elsewhere'), pool);
}

const undo = (effect: Effect) =>
  undoWhenThere(async given => {
    if (given.type === 'file') await removePath(given.path);
    undone.push(given.type);
  }, world)(
    effect,
    signal,
    () => {},
    () => {},
  );

const waitsFor = (reason: string) =>
  expect.objectContaining({ msgKey: 'clean_up_waits', message: expect.stringContaining(reason) });

const partial = (): Effect => ({ type: 'file', path: join(pool, 'backups', '.x.partial') });

describe('a file of a pool that is not mounted', () => {
  test('does not count as removed; it is removed when the pool is back, also while libvirt is away', async () => {
    rememberPlaces(world.settings, [place()]);
    writeFileSync(join(pool, 'backups', '.x.partial'), 'half');
    unmount();
    connected = false;
    await expect(undo(partial())).rejects.toEqual(waitsFor('not mounted'));
    expect(undone).toEqual([]);
    mount();
    await undo(partial());
    expect(existsSync(join(pool, 'backups', '.x.partial'))).toBe(false);
  });

  test('waits for libvirt as long as no pool was ever looked at', async () => {
    connected = false;
    await expect(undo(partial())).rejects.toEqual(expect.objectContaining({ msgKey: 'libvirt_unreachable' }));
    connected = true;
    pools = [samplePool('nfs', { path: pool, mounted: false })];
    await expect(undo(partial())).rejects.toEqual(waitsFor('never seen mounted'));
    expect(undone).toEqual([]);
  });

  test('that went away in the middle of the undo has shown nothing', async () => {
    rememberPlaces(world.settings, [place()]);
    const vanishing = undoWhenThere(async () => unmount(), world);
    await expect(
      vanishing(
        partial(),
        signal,
        () => {},
        () => {},
      ),
    ).rejects.toEqual(waitsFor('not mounted'));
  });

  test('and is defined no more says how to let go of it', async () => {
    rememberPlaces(world.settings, [place()]);
    rmSync(pool, { recursive: true });
    pools = [];
    await expect(undo(partial())).rejects.toEqual(waitsFor(MARKER));
    mkdirSync(pool);
    writeFileSync(join(pool, MARKER), '');
    await undo(partial());
    expect(undone).toEqual(['file']);
  });

  test('holds up nothing that lies elsewhere', async () => {
    rememberPlaces(world.settings, [place()]);
    unmount();
    await undo({ type: 'file', path: join(directory, 'nfs-other', 'x') });
    await undo({ type: 'frozen_guest', domainId: 'd' });
    expect(undone).toEqual(['file', 'frozen_guest']);
  });
});

/** A definition with these devices and this metadata of ours. */
const domainWith = (devices: string, metadata = ''): string =>
  `<domain type='qemu'><name>vm</name><metadata><v:domain xmlns:v='urn:virtkeep:domain:1'>${metadata}</v:domain></metadata><devices>${devices}</devices></domain>`;

const diskOn = (path: string, device: string, more = ''): string =>
  `<disk type='file' device='${device}'><driver name='qemu' type='qcow2'/><source file='${path}'/>${more}<target dev='vda'/></disk>`;

const merge: Effect = { type: 'removed_state', domainId: 'd', name: null, countsAsDeletion: false };

test('what is done to a domain waits for libvirt, and for the pools that hold its disks', async () => {
  rememberPlaces(world.settings, [place()]);
  connected = false;
  await expect(undo(merge)).rejects.toEqual(expect.objectContaining({ msgKey: 'libvirt_unreachable' }));
  connected = true;
  definitions.d = domainWith(diskOn(`${pool}/vm.qcow2`, 'disk'));
  unmount();
  await expect(undo(merge)).rejects.toEqual(waitsFor('not mounted'));
  definitions.d = domainWith(diskOn('/elsewhere/vm.qcow2', 'disk'));
  await undo(merge);
  expect(undone).toEqual(['removed_state']);
});

test.each<[string, () => string]>([
  ['a LUN', () => domainWith(diskOn(`${pool}/lun`, 'lun'))],
  [
    'a layer',
    () =>
      domainWith(
        diskOn(
          '/elsewhere/top.qcow2',
          'disk',
          `<backingStore type='file'><source file='${pool}/below.qcow2'/></backingStore>`,
        ),
      ),
  ],
  [
    'a volume',
    () =>
      domainWith(
        "<disk type='volume' device='disk'><source pool='nfs' volume='vm.qcow2'/><target dev='vda'/></disk>",
      ),
  ],
  [
    'what is to be merged',
    () => domainWith('', `<v:loose-layer target='vda' path='${pool}/a.qcow2' overlay='yes'/>`),
  ],
])('%s that lies in a pool is waited for', async (_what, definition) => {
  rememberPlaces(world.settings, [place()]);
  unmount();
  definitions.d = definition();
  await expect(undo(merge)).rejects.toEqual(waitsFor('not mounted'));
});

test.each<[string, () => string]>([
  ['an image in a drive', () => diskOn(`${pool}/install.iso`, 'cdrom')],
  ['a floppy', () => diskOn(`${pool}/drivers.img`, 'floppy')],
  [
    'a shared directory',
    () => `<filesystem type='mount'><source dir='${pool}/share'/><target dir='x'/></filesystem>`,
  ],
  ['the log of a console', () => `<serial type='pty'><log file='${pool}/vm.log'/></serial>`],
])('%s in a pool that never comes back holds no VM up', async (_what, device) => {
  rememberPlaces(world.settings, [place()]);
  rmSync(pool, { recursive: true });
  pools = [];
  definitions.d = domainWith(diskOn('/elsewhere/vm.qcow2', 'disk') + device());
  await undo(merge);
  expect(undone).toEqual(['removed_state']);
});

test('a directory inside of another pool is waited for alone when it alone holds the disk', async () => {
  rememberPlaces(world.settings, [place(), place({ id: 'id-gone', name: 'gone', path: join(pool, 'gone') })]);
  definitions.d = domainWith(diskOn(`${pool}/vm.qcow2`, 'disk'));
  await undo(merge);
  definitions.d = domainWith(diskOn(`${pool}/gone/vm.qcow2`, 'disk'));
  await expect(undo(merge)).rejects.toEqual(waitsFor('no data pool'));
});

test('a file system that does not answer is waited for', async () => {
  rememberPlaces(world.settings, [place()]);
  world.gate = new PathGate(50);
  const hung = world.gate.run('id-nfs', () => new Promise<never>(() => {}));
  await hung;
  await expect(undo(partial())).rejects.toEqual(waitsFor('does not answer'));
});

test('a guest is thawed while pools do not answer', async () => {
  rememberPlaces(world.settings, [place()]);
  world.pools = () => new Promise<never>(() => {});
  await undo({ type: 'frozen_guest', domainId: 'd' });
  expect(undone).toEqual(['frozen_guest']);
});

describe('a known place', () => {
  test('without a marker is there while its file system is mounted where it was', async () => {
    expect(await isThere(place({ marker: false, mountPoint: '/' }))).toBe(true);
    rmSync(join(pool, MARKER));
    expect(await isThere(place({ marker: false, mountPoint: '/srv/nfs' }))).toBe(false);
    expect(await isThere(place({ marker: false, path: '/proc/sys', mountPoint: '/proc' }))).toBe(true);
  });

  test('is replaced by what is seen there later, and others stay', () => {
    rememberPlaces(world.settings, []);
    expect(knownPlaces(world.settings)).toEqual([]);
    rememberPlaces(world.settings, [place(), place({ id: 'b', path: '/b' })]);
    rememberPlaces(world.settings, [place({ id: 'c', marker: false })]);
    expect(knownPlaces(world.settings)).toEqual([
      place({ id: 'b', path: '/b' }),
      place({ id: 'c', marker: false }),
    ]);
  });

  test('stays when its pool gets another path: files may be left there', () => {
    const [former, now] = [place({ path: '/a' }), place({ path: '/b' })];
    rememberPlaces(world.settings, [former]);
    rememberPlaces(world.settings, [now]);
    expect(knownPlaces(world.settings)).toEqual([former, now]);
  });
});

test('an error of the undo itself is told as it is', async () => {
  const failing = undoWhenThere(async () => {
    throw new VirtkeepError('domain_running', { domain: 'd' });
  }, world);
  await expect(
    failing(
      partial(),
      signal,
      () => {},
      () => {},
    ),
  ).rejects.toEqual(expect.objectContaining({ msgKey: 'domain_running' }));
});

test('a loan of a VM on another node waits for no VM of this one but for libvirt', async () => {
  const asked: string[] = [];
  world.libvirt = () =>
    ({
      domain: (id: string) => ({
        xml: async () => {
          asked.push(id);
          throw new Error('Invalid UUID');
        },
      }),
    }) as unknown as Libvirt;
  const loan = { type: 'loan', diskId: 'd', borrowerId: 'b', unplug: true, keepClone: false } as const;
  connected = false;
  await expect(undo({ ...loan, ownerId: '' })).rejects.toMatchObject({ msgKey: 'libvirt_unreachable' });
  connected = true;
  await undo({ ...loan, ownerId: '' });
  expect(undone).toEqual(['loan']);
  expect(asked).toEqual([]);
});

test('a revert that stopped its guest waits until the other nodes can be asked, or nobody asks them; nothing else does', async () => {
  const controller = Promise.withResolvers<void>();
  world.untilController = () => controller.promise;
  const revert = (wasRunning: boolean): Effect => ({
    ...{ type: 'revert', domainId: 'd', state: 's', overlays: [], formerOverlays: {}, formerCurrent: null },
    ...{ formerDefinition: '<domain/>', wasRunning },
  });
  await undo(partial());
  await undo(revert(false));
  const waiting = undo(revert(true));
  await new Promise(resolve => setTimeout(resolve, 50));
  expect(undone).toEqual(['file', 'revert']);
  controller.resolve();
  await waiting;
  expect(undone).toEqual(['file', 'revert', 'revert']);
});
