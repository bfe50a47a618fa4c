import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import { NO_OTHER_NODES, type OtherNodes } from '../other-nodes.ts';
import { samplePool } from '../pools/sample-pool.ts';
import {
  definitionsOf,
  filesOfDomain,
  type ImageQuestion,
  PendingAnswers,
  removeImages,
  replaceImages,
} from './index.ts';

const OWNER = '11111111-2222-4333-8444-555555555555';
const OTHER = '21111111-2222-4333-8444-555555555555';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'images-'));
});
afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

const at = (name: string) => join(directory, name);

function image(name: string, backing?: string): string {
  const below = backing === undefined ? [] : ['-u', '-b', at(backing), '-F', 'qcow2'];
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...below, at(name), '1M']);
  return at(name);
}

interface Scripted {
  id: string;
  /** Names of images, by target. */
  disks?: Record<string, string>;
  /** What the next start would use, when that is something else. */
  next?: Record<string, string>;
  metadata?: string;
  states?: { disks: Record<string, string>; overlays?: Record<string, string>; memory?: string }[];
  running?: boolean;
  /** What its saved memory names; null: that cannot be read. */
  saved?: Record<string, string> | null;
  /** Nobody knows why somebody wrote that down for it. */
  deep?: boolean;
}

const disksXml = (disks: Record<string, string>) =>
  Object.entries(disks)
    .map(
      ([target, name]) =>
        `<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${at(name)}'/><target dev='${target}'/></disk>`,
    )
    .join('');

function domainXml({ id, metadata = '', deep = false }: Scripted, disks: Record<string, string>): string {
  const odd = deep ? `${'<a>'.repeat(100)}${'</a>'.repeat(100)}` : '';
  const own = `<metadata><v:domain xmlns:v='urn:virtkeep:domain:1'>${metadata}</v:domain>${odd}</metadata>`;
  return `<domain type='qemu'><name>vm-${id[0]}</name><uuid>${id}</uuid>${own}<memory>1</memory><os><type>hvm</type></os><devices>${disksXml(disks)}</devices></domain>`;
}

function stateXml(domain: Scripted, index: number): string {
  const { disks, overlays = {}, memory } = domain.states![index]!;
  const made = Object.entries(overlays)
    .map(([target, name]) => `<disk name='${target}' snapshot='external'><source file='${at(name)}'/></disk>`)
    .join('');
  const kept = memory === undefined ? '' : `<memory snapshot='external' file='${at(memory)}'/>`;
  return `<domainsnapshot><name>s${index}</name>${kept}<disks>${made}</disks>${domainXml(domain, disks)}</domainsnapshot>`;
}

/** A libvirt that knows these domains. */
function node(...domains: Scripted[]): Libvirt {
  const known = domains.map(domain => ({
    uuid: domain.id,
    name: `vm-${domain.id[0]}`,
    isActive: async () => domain.running ?? false,
    xml: async (flags = 0) => domainXml(domain, (flags && domain.next) || domain.disks || {}),
    hasManagedSave: async () => domain.saved !== undefined,
    managedSaveXml: async () => {
      if (!domain.saved) throw new Error('it is damaged');
      return domainXml(domain, domain.saved);
    },
    snapshots: async () =>
      (domain.states ?? []).map((_, index) => ({
        name: `s${index}`,
        xml: async () => stateXml(domain, index),
      })),
  }));
  return { domains: async () => known } as unknown as Libvirt;
}

const answering = (answer: Awaited<ReturnType<OtherNodes['whoUses']>>[number]): OtherNodes => ({
  whoUses: async things => things.map(() => answer),
});

function remove(
  libvirt: Libvirt,
  names: string[],
  question: ImageQuestion & { otherNodes?: OtherNodes; shared?: boolean } = {},
) {
  const { otherNodes = NO_OTHER_NODES, shared = false, ...rest } = question;
  const pools = async () => [samplePool('one', { path: directory, shared })];
  return removeImages({ libvirt: () => libvirt, pools, otherNodes }, names.map(at), {
    ...rest,
    signal: AbortSignal.timeout(240_000),
  });
}

test('of other domains no more is asked than what they refer to', async () => {
  const path = image('free.qcow2');
  const calls = new Map<string, string[]>();
  const libvirt = node(
    { id: OWNER, running: true },
    { id: OTHER, running: true, disks: { vda: 'other.qcow2' } },
  );
  const counting = (domain: Domain) =>
    new Proxy(domain, {
      get(target, name: keyof Domain) {
        const value = target[name];
        if (typeof value === 'function') calls.set(target.uuid, [...(calls.get(target.uuid) ?? []), name]);
        return value;
      },
    });
  const domains = async () => (await libvirt.domains()).map(counting);
  const left = await remove({ domains } as unknown as Libvirt, ['free.qcow2'], {
    ownerId: OWNER,
    unanswered: 'fresh',
  });
  expect([left, existsSync(path)]).toEqual([[], false]);
  const definitions = ['xml', 'xml', 'hasManagedSave', 'snapshots'];
  expect(calls.get(OTHER)).toEqual(definitions);
  expect(calls.get(OWNER)).toEqual(['isActive', ...definitions]);
});

test('what a definition says is remembered as long as its text is the same', async () => {
  const states = [{ disks: { vda: 'own.qcow2' }, overlays: { vda: 'overlay.qcow2' } }];
  const read = async (name: string) => {
    const [domain] = await node({ id: OTHER, disks: { vda: name }, states }).domains();
    return definitionsOf(domain!);
  };
  const [live, state] = await read('a.qcow2');
  const again = await read('a.qcow2');
  expect([again[0] === live, again[1] === state]).toEqual([true, true]);
  const changed = await read('b.qcow2');
  expect([changed[0] === live, changed[1] === state]).toEqual([false, true]);
  expect(changed[0]!.config!.disks[0]!.path).toBe(at('b.qcow2'));
});

test('what a domain refers to is asked anew at each removal, however often its texts were read before', async () => {
  for (const name of ['a', 'b']) image(`${name}.qcow2`);
  const using = (name: string) => node({ id: OTHER, disks: { vda: `${name}.qcow2` } });
  const left = async (libvirt: Libvirt, name: string) => (await remove(libvirt, [`${name}.qcow2`])).length;
  expect(await left(using('a'), 'a')).toBe(1);
  expect(await left(using('a'), 'a')).toBe(1);
  expect(await left(using('b'), 'b')).toBe(1);
  expect(await left(using('b'), 'a')).toBe(0);
  expect([existsSync(at('a.qcow2')), existsSync(at('b.qcow2'))]).toEqual([false, true]);
});

describe('what goes with a domain and its disks', () => {
  const STATE = 'vm.vda.state-31111111-2222-4333-8444-555555555555.qcow2';

  /** Images that stand on one another, the first one on nothing. */
  function chain(...names: string[]): void {
    for (const [index, name] of names.entries()) image(name, names[index - 1]);
  }

  async function files(domain: Omit<Scripted, 'id'>) {
    const [found] = await node({ id: OWNER, ...domain }).domains();
    const pools = [samplePool('one', { path: directory })];
    const { own, others } = await filesOfDomain(found!, pools, path => path.includes('.state-'));
    return { own: own.map(path => basename(path)), others: others.map(path => basename(path)) };
  }

  test('not the image that its disk was made on, though nothing else stands on it', async () => {
    chain('golden.qcow2', 'vm.qcow2', 'one.qcow2');
    expect(await files({ disks: { vda: 'vm.qcow2' } })).toEqual({
      own: ['vm.qcow2'],
      others: ['golden.qcow2'],
    });
    const states = [{ disks: { vda: 'vm.qcow2' }, overlays: { vda: 'one.qcow2' } }];
    expect(await files({ disks: { vda: 'one.qcow2' }, states })).toEqual({
      own: ['one.qcow2', 'vm.qcow2'],
      others: ['golden.qcow2'],
    });
  });

  test('what a saved state kept that libvirt forgot, by the name of what was made for it', async () => {
    chain('golden.qcow2', 'vm.qcow2', STATE);
    expect(await files({ disks: { vda: STATE } })).toEqual({
      own: ['vm.qcow2', STATE].sort(),
      others: ['golden.qcow2'],
    });
  });

  test('not what others have put a layer on without a word', async () => {
    chain('vm.qcow2', 'vm.snap1');
    expect(await files({ disks: { vda: 'vm.snap1' } })).toEqual({ own: ['vm.snap1'], others: ['vm.qcow2'] });
  });

  test('what deleted saved states have left; but not what was being merged and is below no disk: one that was detached may need it', async () => {
    chain('golden.qcow2', 'vm.qcow2', 'vm.snap1', 'top.qcow2');
    for (const name of ['branch', 'merged', 'gone']) chain(`${name}.qcow2`, `${name}-above.qcow2`);
    const loose = (name: string, rest: string) =>
      `<v:loose-layer target='vda' path='${at(name)}' overlay='yes' ${rest}/>`;
    const merging = (name: string, stage: string) =>
      loose(`${name}.qcow2`, `merging='${at(`${name}-above.qcow2`)}' stage='${stage}'`);
    const metadata =
      loose('vm.qcow2', '') +
      loose('branch.qcow2', '') +
      merging('merged', 'merged') +
      merging('gone', 'begun');
    expect(await files({ disks: { vda: 'top.qcow2' }, metadata })).toEqual({
      own: ['branch.qcow2', 'merged-above.qcow2', 'merged.qcow2', 'top.qcow2', 'vm.qcow2', 'vm.snap1'],
      others: ['golden.qcow2', 'gone-above.qcow2', 'gone.qcow2'],
    });
  });

  test('what was being merged below one of its disks', async () => {
    chain('golden.qcow2', 'vm.qcow2', 'vm.snap1', 'top.qcow2');
    const metadata = `<v:loose-layer target='vda' path='${at('vm.qcow2')}' overlay='yes' merging='${at('vm.snap1')}' stage='begun'/>`;
    expect(await files({ disks: { vda: 'top.qcow2' }, metadata })).toEqual({
      own: ['top.qcow2', 'vm.qcow2', 'vm.snap1'],
      others: ['golden.qcow2'],
    });
  });

  test('nothing of its template, of which the lowest image is no surprise', async () => {
    chain('golden.qcow2', STATE, 'clone.qcow2');
    const metadata = `<v:parent id='${OTHER}' version='1'/>`;
    expect(await files({ disks: { vda: 'clone.qcow2' }, metadata })).toEqual({
      own: ['clone.qcow2'],
      others: [STATE],
    });
  });
});

test('a domain that cannot be read keeps whatever it names and those stand on, and no more', async () => {
  for (const [name, below] of [['base'], ['top', 'base'], ['own'], ['overlay'], ['free']] as const)
    image(`${name}.qcow2`, below && `${below}.qcow2`);
  const states = [{ disks: { vda: 'own.qcow2' }, overlays: { vda: 'overlay.qcow2' } }];
  const other = { id: OTHER, disks: { vda: 'top.qcow2' }, states, deep: true };
  const asked = ['free.qcow2', 'base.qcow2', 'own.qcow2', 'overlay.qcow2'];
  const left = await remove(node({ id: OWNER }, other), asked, { ownerId: OWNER });
  expect(left.map(({ path }) => path)).toEqual(['base.qcow2', 'own.qcow2', 'overlay.qcow2'].map(at));
  expect(existsSync(at('free.qcow2'))).toBe(false);
});

test('a file that nobody uses goes, one that is not there is fine', async () => {
  image('a.qcow2');
  writeFileSync(at('a.memory'), '');
  expect(
    await remove(node({ id: OWNER, disks: { vda: 'b.qcow2' } }), ['a.qcow2', 'a.memory', 'gone']),
  ).toEqual([]);
  expect([existsSync(at('a.qcow2')), existsSync(at('a.memory'))]).toEqual([false, false]);
});

test.each<[string, Omit<Scripted, 'id'>]>([
  ['a disk, whatever its target', { disks: { sdx: 'a.qcow2' } }],
  ['a disk of the next start alone', { disks: {}, next: { vda: 'a.qcow2' } }],
  ['a disk that its saved memory names', { saved: { vda: 'a.qcow2' } }],
  ['a layer below a disk', { disks: { vda: 'top.qcow2' } }],
  ['a disk that a saved state keeps', { states: [{ disks: { vda: 'a.qcow2' } }] }],
  ['an overlay made for a saved state', { states: [{ disks: {}, overlays: { vda: 'a.qcow2' } }] }],
  ['the memory of a saved state', { states: [{ disks: {}, memory: 'a.qcow2' }] }],
])('%s of any domain is left, and its user named', async (_what, domain) => {
  image('a.qcow2');
  image('top.qcow2', 'a.qcow2');
  const left = await remove(node({ id: OTHER, ...domain }), ['a.qcow2']);
  expect(left).toMatchObject([
    { path: at('a.qcow2'), why: 'used', text: expect.stringContaining('used by the domain vm-2') },
  ]);
  expect(existsSync(at('a.qcow2'))).toBe(true);
});

test('saved memory that cannot be read keeps nothing', async () => {
  image('a.qcow2');
  expect(await remove(node({ id: OTHER, saved: null }), ['a.qcow2'])).toEqual([]);
});

test('what its own saved state only names as made for it, the memory too, goes before that state does', async () => {
  image('a.qcow2');
  writeFileSync(at('a.memory'), '');
  const state = { disks: {}, overlays: { vda: 'a.qcow2' }, memory: 'a.memory' };
  const libvirt = node({ id: OWNER, states: [state] });
  expect(await remove(libvirt, ['a.qcow2', 'a.memory'], { ownerId: OWNER })).toEqual([]);
});

test('what a domain noted as to be merged is its own alone to remove', async () => {
  const metadata = `<v:loose-layer target='vda' path='${at('a.qcow2')}' overlay='yes'/>`;
  const libvirt = node({ id: OWNER, metadata, states: [{ disks: {}, overlays: { vda: 'a.qcow2' } }] });
  image('a.qcow2');
  expect(await remove(libvirt, ['a.qcow2'])).toMatchObject([{ why: 'used' }]);
  expect(await remove(libvirt, ['a.qcow2'], { ownerId: OWNER })).toEqual([]);
});

test('the memory of a state is its own domain’s to remove, while libvirt still lists the state', async () => {
  const libvirt = node({ id: OWNER, states: [{ disks: {}, memory: 'a.memory' }] });
  writeFileSync(at('a.memory'), '');
  expect(await remove(libvirt, ['a.memory'])).toMatchObject([{ why: 'used' }]);
  expect(await remove(libvirt, ['a.memory'], { ownerId: OWNER })).toEqual([]);
  expect(existsSync(at('a.memory'))).toBe(false);
});

test('the owner too keeps what it writes to, under another target even', async () => {
  image('a.qcow2');
  const libvirt = node({ id: OWNER, disks: { sdb: 'a.qcow2' } });
  expect(await remove(libvirt, ['a.qcow2'], { ownerId: OWNER })).toMatchObject([{ why: 'used' }]);
});

test('an image that stands on it keeps it, though no domain knows of that image', async () => {
  image('base.qcow2');
  image('child.qcow2', 'base.qcow2');
  const left = await remove(node(), ['base.qcow2']);
  expect(left).toMatchObject([{ why: 'used', text: expect.stringContaining('child.qcow2') }]);
});

test('a chain goes from above, and what a layer that is left stands on stays, too', async () => {
  for (const [name, below] of [['a'], ['b', 'a'], ['c', 'b']])
    image(`${name}.qcow2`, below && `${below}.qcow2`);
  const names = ['a.qcow2', 'b.qcow2', 'c.qcow2'];
  const holder = await open('c.qcow2', true);
  try {
    const left = await remove(node(), names);
    expect(left.map(({ path }) => path)).toEqual(['c.qcow2', 'b.qcow2', 'a.qcow2'].map(at));
  } finally {
    await holder();
  }
  expect(await remove(node(), names)).toEqual([]);
});

/** Keeps an image open as QEMU does. @returns its end */
async function open(name: string, readonly: boolean): Promise<() => Promise<void>> {
  const socket = at(`${name}.sock`);
  const args = ['--export', `nbd,id=e,node-name=d,writable=${readonly ? 'off' : 'on'}`];
  const nodeArgs = `driver=qcow2,node-name=d,read-only=${readonly ? 'on' : 'off'},file.driver=file,file.filename=${at(name)}`;
  const pid = at(`${name}.pid`);
  const daemon = spawn(
    'qemu-storage-daemon',
    ['--blockdev', nodeArgs, '--nbd-server', `addr.type=unix,addr.path=${socket}`, ...args, '--pidfile', pid],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  const ended = once(daemon, 'exit');
  while (!existsSync(pid) && daemon.exitCode === null) await new Promise(resolve => setTimeout(resolve, 20));
  return async () => {
    daemon.kill();
    await ended;
  };
}

test.each([
  ['writes to it', false],
  ['only reads it', true],
])(
  'a process that no domain stands for keeps a file that it has open: it %s',
  async (_what, readonly) => {
    image('a.qcow2');
    const close = await open('a.qcow2', readonly as boolean);
    try {
      const left = await remove(node(), ['a.qcow2']);
      expect(left).toMatchObject([{ why: 'used', text: expect.stringContaining('has it open') }]);
    } finally {
      await close();
    }
    expect(await remove(node(), ['a.qcow2'])).toEqual([]);
  },
  20_000,
);

test('links on the way to a file do not hide its users', async () => {
  image('a.qcow2');
  mkdirSync(at('else'));
  symlinkSync(directory, at('else/pool'));
  const libvirt = node({ id: OTHER, disks: { vda: 'else/pool/a.qcow2' } });
  expect(await remove(libvirt, ['a.qcow2'])).toMatchObject([{ why: 'used' }]);
});

test('where other nodes can reach it they are asked; without an answer it is left', async () => {
  const asked: unknown[] = [];
  const otherNodes: OtherNodes = {
    whoUses: async things => {
      asked.push(...things);
      return things.map(() => ({ kind: 'unknown', reason: 'no controller was asked' }));
    },
  };
  image('a.qcow2');
  const left = await remove(node(), ['a.qcow2'], { shared: true, otherNodes, ownerId: OWNER });
  expect(asked).toEqual([
    { kind: 'file', poolId: 'id-one', path: 'a.qcow2' },
    { kind: 'domain', id: OWNER },
  ]);
  expect(left).toEqual([
    {
      path: at('a.qcow2'),
      why: 'unknown',
      reason: 'no controller was asked',
      text: `${at('a.qcow2')} was left: whether another node uses it is not known (no controller was asked).`,
    },
  ]);
  const by = { nodeName: 'n2', domainId: OTHER, domainName: 'web' };
  expect(
    await remove(node(), ['a.qcow2'], { shared: true, otherNodes: answering({ kind: 'used', by }) }),
  ).toMatchObject([{ why: 'used', text: expect.stringContaining('web on the node n2') }]);
  expect(
    await remove(node(), ['a.qcow2'], { shared: true, otherNodes: answering({ kind: 'unused' }) }),
  ).toEqual([]);
});

test('a copy of a VM that runs here, which another node still knows, uses nothing but what it names', async () => {
  image('a.qcow2');
  const by = { nodeName: 'n2', domainId: OWNER, domainName: 'vm-1' };
  const otherNodes: OtherNodes = {
    whoUses: async things =>
      things.map(({ kind }) => (kind === 'domain' ? { kind: 'used', by } : { kind: 'unused' })),
  };
  const question = { shared: true, ownerId: OWNER, otherNodes };
  expect(await remove(node({ id: OWNER }), ['a.qcow2'], question)).toMatchObject([{ why: 'used' }]);
  expect(await remove(node({ id: OWNER, running: true }), ['a.qcow2'], question)).toEqual([]);
});

test('a pool that looks local may be that of another node too: its use counts, its silence does not', async () => {
  const by = { nodeName: 'n2', domainId: OTHER, domainName: 'web' };
  image('a.qcow2');
  expect(
    await remove(node(), ['a.qcow2'], { ownerId: OWNER, otherNodes: answering({ kind: 'used', by }) }),
  ).toMatchObject([{ why: 'used', text: expect.stringContaining('web on the node n2') }]);
  const silent = answering({ kind: 'unknown', reason: 'n2 is away' });
  expect(await remove(node(), ['a.qcow2'], { ownerId: OWNER, otherNodes: silent })).toEqual([]);
});

test('a layer made for a VM needs no answer as long as that runs here, and does when it may run elsewhere', async () => {
  image('a.qcow2');
  const question = { shared: true, ownerId: OWNER, unanswered: 'fresh' } as const;
  expect(await remove(node(), ['a.qcow2'], question)).toMatchObject([{ why: 'unknown' }]);
  expect(await remove(node({ id: OWNER }), ['a.qcow2'], question)).toMatchObject([{ why: 'unknown' }]);
  expect(await remove(node({ id: OWNER, running: true }), ['a.qcow2'], question)).toEqual([]);
});

function replace(
  libvirt: Libvirt,
  files: { from: string; to: string }[],
  leaving: string[],
  leavingFiles: string[] = [],
) {
  const pools = async () => [samplePool('one', { path: directory })];
  const paths = files.map(({ from, to }) => ({ from: at(from), to: at(to) }));
  return replaceImages({ libvirt: () => libvirt, pools, otherNodes: NO_OTHER_NODES }, paths, {
    leaving,
    leavingFiles: leavingFiles.map(at),
    signal: AbortSignal.timeout(240_000),
  });
}

test('an image takes the place of one that only those use which give it up', async () => {
  image('base.qcow2');
  image('clone.qcow2', 'base.qcow2');
  image('new-clone.qcow2', 'base.qcow2');
  image('new.qcow2');
  const files = [
    { from: 'new-clone.qcow2', to: 'clone.qcow2' },
    { from: 'new.qcow2', to: 'base.qcow2' },
  ];
  const content = readFileSync(at('new.qcow2'));
  const libvirt = node(
    { id: OWNER, disks: { vda: 'base.qcow2' } },
    { id: OTHER, disks: { vda: 'clone.qcow2' } },
  );
  await expect(replace(libvirt, files, [OWNER])).rejects.toMatchObject({ msgKey: 'image_in_use' });
  const close = await open('base.qcow2', true);
  await expect(replace(libvirt, files, [OWNER, OTHER])).rejects.toMatchObject({ msgKey: 'image_in_use' });
  await close();
  // who has one open for long stops all of them, and none halfway
  expect(existsSync(at('new-clone.qcow2'))).toBe(true);
  await replace(libvirt, files, [OWNER, OTHER]);
  expect(readFileSync(at('base.qcow2')).equals(content)).toBe(true);
});

test('an image is not replaced under one that stays, though the domain of that one gives others up', async () => {
  image('base.qcow2');
  image('clone.qcow2', 'base.qcow2');
  image('new.qcow2');
  const libvirt = node(
    { id: OWNER, disks: { vda: 'base.qcow2' } },
    { id: OTHER, disks: { vda: 'clone.qcow2' } },
  );
  const files = [{ from: 'new.qcow2', to: 'base.qcow2' }];
  await expect(replace(libvirt, files, [OWNER, OTHER])).rejects.toMatchObject({
    msgKey: 'image_in_use',
    params: { user: expect.stringContaining('clone.qcow2') },
  });
  // it has taken its place already
  await replace(libvirt, files, [OWNER, OTHER], ['clone.qcow2']);
  expect(existsSync(at('new.qcow2'))).toBe(false);
});

test('an image that is given up holds nothing up when its domain is gone, and does when another has it by then', async () => {
  image('base.qcow2');
  image('orphan.qcow2', 'base.qcow2');
  image('new.qcow2');
  const template = { id: OWNER, disks: { vda: 'base.qcow2' } };
  const files = [{ from: 'new.qcow2', to: 'base.qcow2' }];
  const taken = node(template, { id: OTHER, disks: { vda: 'orphan.qcow2' } });
  for (const [libvirt, given] of [[node(template), []] as const, [taken, ['orphan.qcow2']] as const])
    await expect(replace(libvirt, files, [OWNER], [...given])).rejects.toMatchObject({
      msgKey: 'image_in_use',
    });
  const content = readFileSync(at('new.qcow2'));
  await replace(node(template), files, [OWNER], ['orphan.qcow2']);
  expect(readFileSync(at('base.qcow2')).equals(content)).toBe(true);
});

test('an answer that may still come is waited for, and not for ever', () => {
  const told: string[] = [];
  const left = (why: 'used' | 'unknown') => ({ path: `/pool/${why}`, why, reason: 'x', text: why });
  const both = [left('used'), left('unknown')];
  const patient = new PendingAnswers(60_000);
  for (const _ of [1, 2])
    expect(() => patient.settle(both, text => told.push(text))).toThrow(
      expect.objectContaining({ msgKey: 'image_use_unknown' }),
    );
  expect(told).toEqual([]);
  new PendingAnswers(0).settle(both, text => told.push(text));
  patient.settle([left('used')], text => told.push(text));
  expect(told).toEqual(['used', 'unknown', 'used']);
});

test('answers about several files are waited for together', async () => {
  const left = ['a', 'b'].map(path => ({ path, why: 'unknown', reason: 'x', text: path }) as const);
  const pending = new PendingAnswers(50);
  const told: string[] = [];
  const settle = () => pending.settle(left, text => told.push(text));
  expect(settle).toThrow(expect.objectContaining({ msgKey: 'image_use_unknown' }));
  await new Promise(resolve => setTimeout(resolve, 60));
  settle();
  expect(told).toEqual(['a', 'b']);
});
