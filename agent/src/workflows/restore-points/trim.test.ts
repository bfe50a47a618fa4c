// Archives of real layers, trimmed: each state that stays is, byte for byte, what it was.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { TrimBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { KiB, MiB } from '@virtkeep/shared/units';
import { testAuthority } from '../../archive/format/signing-kit.ts';
import {
  ArchiveAppender,
  ArchiveSigner,
  ArchiveWriter,
  type Manifest,
  type ManifestSavedState,
  type MemberRecord,
  openArchive,
  verifyArchive,
} from '../../archive/index.ts';
import { appendState, BACKUP_ID, CREATED, manifestOf, signal, writeArchive } from '../../archive/test-kit.ts';
import type { PoolRecord } from '../../pools/index.ts';
import { incrementTag } from '../../snapshots/index.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { trimWorkflow } from './trim.ts';

const SIZE = '8M';
const BASE_BYTE = 77;
let directory: string;
let backups: string;
/** Where the layers are of the archive that was made last. */
let layers: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'trim-'));
  layers = directory;
  backups = join(directory, 'backups');
  mkdirSync(backups);
});
afterEach(() => rmSync(directory, { recursive: true }));

const run = (program: string, ...args: string[]) => execFileSync(program, args, { stdio: 'pipe' });
const layerPath = (number: number) => join(layers, `l${number}.qcow2`);

/** What a state writes: where, in KiB, and of which byte. */
function writesOf(number: number): { kib: [at: number, length: number]; byte: number }[] {
  return [
    { kib: [(number * 700) % 6000, 300], byte: number },
    { kib: [5, number], byte: number + 100 },
    ...(number > 1 ? [{ kib: [((number - 1) * 700) % 6000, 128] as [number, number], byte: 0 }] : []),
  ];
}

/** What a disk shows with a state's layer on what it showed before. */
function written(before: Buffer, number: number, size: string): Buffer {
  const disk = Buffer.alloc(Number.parseInt(size, 10) * MiB);
  before.copy(disk);
  for (const { kib, byte } of writesOf(number)) disk.fill(byte, kib[0] * KiB, (kib[0] + kib[1]) * KiB);
  return disk;
}

/** The layer of a state: random places of its own, and zeros where the one before has data. */
function makeLayer(
  number: number,
  { base, layerOptions = () => [], size = () => SIZE }: Omit<Making, 'states'> = {},
): string {
  const path = layerPath(number);
  const below = number > 1 ? layerPath(number - 1) : base;
  const on = below === undefined ? [] : ['-b', below, '-F', 'qcow2'];
  rmSync(path, { force: true });
  run(
    'qemu-img',
    'create',
    '-q',
    '-f',
    'qcow2',
    ...layerOptions(number).flatMap(option => ['-o', option]),
    ...on,
    path,
    size(number),
  );
  const commands = writesOf(number).map(
    ({ kib: [at, length], byte }) => `write ${byte === 0 ? '-z' : `-P ${byte}`} ${at}k ${length}k`,
  );
  run('qemu-io', '-f', 'qcow2', ...commands.flatMap(command => ['-c', command]), path);
  return path;
}

const alone = (filename: string) => ({ driver: 'qcow2', file: { driver: 'file', filename }, backing: null });
const sha256Of = (disk: Buffer): string => createHash('sha256').update(disk).digest('hex');

/** SHA-256 of what a disk shows at the last of the layers, whatever these say that they stand on. */
function shown(...chain: string[]): string {
  const raw = join(directory, 'shown.raw');
  const source = chain.reduce<object | null>((backing, filename) => ({ ...alone(filename), backing }), null);
  run('qemu-img', 'convert', '-O', 'raw', `json:${JSON.stringify(source)}`, raw);
  const sha256 = sha256Of(readFileSync(raw));
  rmSync(raw);
  return sha256;
}

interface Making {
  states: number;
  /** Names what else is the same in all archives of it. */
  kind?: string;
  zstd?: boolean;
  hash?: boolean;
  signers?: ArchiveSigner[];
  /** What the first layer stands on. */
  base?: string;
  snapshots?: (number: number) => ManifestSavedState[];
  layerOptions?: (number: number) => string[];
  size?: (number: number) => string;
}

const ofState = (number: number): ManifestSavedState => ({
  ...{ name: `s${number}`, parent: number === 1 ? null : `s${number - 1}`, current: false, created: CREATED },
  ...{ description: incrementTag(BACKUP_ID, number), xmlMember: `state_${number}.xml`, memoryMember: null },
  ...{ formerMemoryPath: null, nvram: null, tpm: null },
});

const stateXml = (name: string, overlay: string) =>
  `<domainsnapshot><name>${name}</name><creationTime>1</creationTime><disks><disk name='vda' snapshot='external' type='file'><source file='${overlay}'/></disk></disks></domainsnapshot>`;

/** Archives that several tests begin with, by what they are made of: made once, with their layers, and copied. */
const kinds = new Map<string, { directory: string; shows: string[] }>();
afterAll(() => {
  for (const { directory: made } of kinds.values()) rmSync(made, { recursive: true });
});

/** An archive as increments make it; each state has one layer, and knows those before. @returns what each state shows */
async function make(path: string, options: Making): Promise<string[]> {
  const { states, zstd = false, hash = false, kind } = options;
  const isPlain = Object.keys(options).every(name => ['states', 'zstd', 'hash'].includes(name));
  if (!isPlain && kind === undefined) return makeAnew(path, options);
  const key = `${kind} ${states} ${zstd} ${hash}`;
  if (!kinds.has(key)) {
    layers = mkdtempSync(join(tmpdir(), 'trim-kind-'));
    kinds.set(key, { directory: layers, shows: await makeAnew(join(layers, 'archive'), options) });
  }
  const made = kinds.get(key)!;
  layers = made.directory;
  for (const suffix of ['', '.sha256']) {
    const from = join(layers, `archive${suffix}`);
    if (existsSync(from)) copyFileSync(from, `${path}${suffix}`);
  }
  return [...made.shows];
}

async function makeAnew(path: string, options: Making): Promise<string[]> {
  const { states, zstd = false, hash = false, signers = [], base, snapshots } = options;
  const shows: string[] = [];
  let disk: Buffer = Buffer.alloc(8 * MiB, base === undefined ? 0 : BASE_BYTE);
  for (let number = 1; number <= states; number += 1) {
    const layer = makeLayer(number, options);
    disk = written(disk, number, options.size?.(number) ?? SIZE);
    shows.push(sha256Of(disk));
    const signer = signers[number - 1];
    const writer =
      number === 1
        ? await ArchiveWriter.create({
            ...{ path, backupId: BACKUP_ID, compression: zstd ? {} : null, hash, sign: signer?.sign, signal },
          })
        : await ArchiveAppender.open({
            ...{ path, signal },
            ...(signer && {
              signer: archive => ({ sign: signer.sign, sameSigner: signer.judge(archive).trust === 'own' }),
            }),
          });
    if (writer instanceof ArchiveAppender) await writer.begin(join(directory, 'tail'));
    const name = number === 1 && !base ? 'd.qcow2' : `d_s${number - 1}.snapshot`;
    await writer.addFile(name, number === 1 && !base ? 'disk' : 'layer', layer, { formerPath: layer });
    const prefix = String(number).padStart(4, '0');
    await writer.addBytes(`s${number}.memory`, 'memory', Buffer.alloc(5000, number));
    await writer.addBytes(`${prefix}_vm.xml`, 'domain_xml', Buffer.from(`<domain>${number}</domain>`));
    if (number > 1)
      await writer.addBytes(
        `state_${number - 1}.xml`,
        'state_xml',
        Buffer.from(stateXml(`s${number - 1}`, layer)),
      );
    await writer.finish({
      stateNumber: number,
      manifest: members => grown(number, members, { base, snapshots: snapshots?.(number) }),
    });
    await writer.abort();
  }
  return shows;
}

function grown(
  number: number,
  members: MemberRecord[],
  { base, snapshots }: { base?: string | undefined; snapshots?: ManifestSavedState[] | undefined },
): Manifest {
  const described = manifestOf(members);
  const numbers = Array.from({ length: number }, (_, index) => index + 1);
  const layers = members
    .filter(({ kind }) => kind === 'disk' || kind === 'layer')
    .map((member, index) => ({
      ...{ member: member.name, stateNumber: index + 1, formerPath: member.formerPath },
      frozenBy: index + 1 < number ? `s${index + 1}` : null,
    }));
  return {
    ...described,
    incremental: true,
    states: numbers.map(of => ({
      ...{ ...described.states[0]!, number: of, name: `s${of}`, memoryMember: `s${of}.memory` },
      xmlMember: `${String(of).padStart(4, '0')}_vm.xml`,
    })),
    disks: [
      {
        ...{ id: 'd', target: 'vda', bus: null, virtualSizeBytes: 8 * 1024 * 1024, format: 'qcow2' },
        ...{ formerFormat: 'qcow2', formerPath: layers.at(-1)!.formerPath!, poolId: null, poolName: null },
        layers,
        base:
          base === undefined ? null : { path: base, format: 'qcow2', diskId: null, fingerprint: 'sha256:1' },
      },
    ],
    snapshots: snapshots ?? numbers.slice(0, -1).map(ofState),
  };
}

const commit = jest.fn<OperationContext['commit']>();
const warn = jest.fn();
const effects = jest.fn();

async function trim(
  path: string,
  keepStates: number,
  signer?: ArchiveSigner,
  before: Record<string, () => void> = {},
): Promise<void> {
  for (const mock of [commit, warn, effects]) mock.mockClear();
  const pool = { id: 'p', name: 'p', path: directory, active: true } as PoolRecord;
  const context = {
    ...{ id: 'o', signal, warn, commit },
    effects: {
      begin: (effect: unknown) => {
        effects(effect);
        return { undo: async () => rmSync(join(backups, '.reserved'), { force: true }), keep: () => {} };
      },
    },
    progress: { total: () => {}, done: () => {} },
    step: (name: string, work: () => Promise<unknown>) => {
      before[name]?.();
      return work();
    },
  } as unknown as OperationContext;
  const foreign = () => ({ trust: 'foreign', signer: '', reason: 'unsigned', coversContent: false });
  const dependencies = {
    filesChanged: () => {},
    judge: signer?.judge ?? foreign,
    sign: signer?.sign,
  } as unknown as WorkflowDependencies;
  const request = TrimBackupRequest.fromPartial({ keepStates });
  await trimWorkflow(dependencies, request, { pool, path, filename: basename(path) })(context);
}

const files = () => readdirSync(backups).filter(name => !/^\..*\.(reserved|lock|name)/.test(name));

/** What each state shows, restored by hand from its own manifest; what several of them have is taken out once. */
async function restored(path: string, base?: string): Promise<string[]> {
  const archive = await openArchive(path, signal);
  const out = new Map<string, string>();
  const shows: string[] = [];
  try {
    for (const { number } of archive.manifest!.states) {
      const manifest = await archive.manifestOfState(number);
      const chain = base === undefined ? [] : [base];
      for (const { member } of manifest.disks[0]!.layers) {
        const layer = out.get(member) ?? join(directory, `r${out.size}.qcow2`);
        chain.push(layer);
        if (out.has(member)) continue;
        await archive.extractMember(member, layer, { signal, checkHash: true });
        run('qemu-img', 'check', '-q', `json:${JSON.stringify(alone(layer))}`);
        out.set(member, layer);
      }
      shows.push(shown(...chain));
    }
    return shows;
  } finally {
    await archive.close();
    for (const layer of out.values()) rmSync(layer);
  }
}

async function expectStates(path: string, shows: string[], base?: string): Promise<void> {
  const first = (await manifestIn(path)).states[0]!.number;
  expect(await restored(path, base)).toEqual(shows.slice(first - 1));
  const { problems } = await verifyArchive(path, { signal });
  expect(problems).toEqual([]);
}

async function manifestIn(path: string): Promise<Manifest> {
  const archive = await openArchive(path, signal);
  await archive.close();
  return archive.manifest!;
}

describe.each([
  ['a.tar', false],
  ['a.tar.zst', true],
])('%s, hashes: %s', (name, hash) => {
  const options = { states: 5, hash, zstd: name.endsWith('.zst') };

  test.each([1, 4])('of five restore points %d stay, each as it was', async keep => {
    const path = join(backups, name);
    const shows = await make(path, options);
    const before = await manifestIn(path);
    await trim(path, keep);
    await expectStates(path, shows);
    const after = await manifestIn(path);
    expect(after.states).toEqual(before.states.slice(-keep));
    expect(after.backupId).toBe(before.backupId);
    expect(after.disks[0]!.layers).toHaveLength(keep);
    expect(after.disks[0]!.layers[0]).toMatchObject({ member: 'd.qcow2', formerPath: layerPath(1) });
    expect(after.members.every(({ sha256 }) => (sha256 !== null) === hash)).toBe(true);
    expect(after.members.filter(({ kind }) => kind === 'memory')).toHaveLength(keep);
    expect(files().sort()).toEqual(hash ? [name, `${name}.sha256`] : [name]);
    const [result] = commit.mock.calls[0]!;
    if (result?.$case !== 'trim') throw new Error('a trimmed file was to be told');
    expect(result.value.removedStates).toEqual([1, 2, 3, 4, 5].slice(0, -keep));
    expect(result.value.file).toMatchObject({ id: BACKUP_ID, filename: name, path });
  });

  test('can be trimmed again, and what was copied is the same to the byte', async () => {
    const path = join(backups, name);
    const shows = await make(path, options);
    const memory = (await manifestIn(path)).members.find(member => member.name === 's5.memory')!;
    await trim(path, 4);
    await trim(path, 2);
    await expectStates(path, shows);
    const archive = await openArchive(path, signal);
    const found = await archive.readMember('s5.memory', signal);
    const xml = await archive.readMember('0005_vm.xml', signal);
    await archive.close();
    expect([found.equals(Buffer.alloc(5000, 5)), memory.sizeBytes]).toEqual([true, 5000]);
    expect(String(xml)).toBe('<domain>5</domain>');
  });
});

test('the restore point that comes next continues what is left', async () => {
  const path = join(backups, 'a.tar');
  const shows = await make(path, { states: 4, hash: true });
  await trim(path, 2);
  const layer = makeLayer(5);
  shows.push(shown(...[1, 2, 3, 4, 5].map(layerPath)));
  const appender = await ArchiveAppender.open({ path, signal });
  await appender.begin(join(directory, 'tail'));
  await appender.addFile('d_s4.snapshot2', 'layer', layer, { formerPath: layer });
  await appender.addBytes('0005_vm.xml', 'domain_xml', Buffer.from('<domain>5</domain>'));
  const former = appender.manifest;
  await appender.finish({
    stateNumber: 5,
    manifest: members => ({
      ...former,
      members,
      states: [...former.states, { ...former.states[0]!, number: 5, name: 's5', xmlMember: '0005_vm.xml' }],
      disks: former.disks.map(disk => ({
        ...disk,
        layers: [
          ...disk.layers,
          { member: 'd_s4.snapshot2', stateNumber: 5, frozenBy: null, formerPath: layer },
        ],
      })),
    }),
  });
  await appender.abort();
  await expectStates(path, shows);
});

test('a long archive is trimmed to one whose manifests continue one another', async () => {
  const path = join(backups, 'a.tar');
  await writeArchive(path, []);
  for (let number = 2; number <= 49; number += 1)
    await appendState(path, [], { tailPath: join(directory, 'tail') });
  await trim(path, 10);
  const { restorableStates, problems } = await verifyArchive(path, { signal });
  expect([restorableStates, problems]).toEqual([[40, 41, 42, 43, 44, 45, 46, 47, 48, 49], []]);
  const archive = await openArchive(path, signal);
  const newest = String(await archive.readMember('0049_manifest.json', signal));
  await archive.close();
  expect(newest).toContain('"manifest": "0040_manifest.json"');
});

test('a saved state that a user made keeps its layer apart, and stands on what stays', async () => {
  const path = join(backups, 'a.tar');
  const mine = { ...ofState(2), description: null };
  const shows = await make(path, {
    states: 5,
    snapshots: number =>
      Array.from({ length: number - 1 }, (_, index) => (index === 1 ? mine : ofState(index + 1))),
  });
  await trim(path, 1);
  await expectStates(path, shows);
  const { snapshots, disks } = await manifestIn(path);
  expect(disks[0]!.layers.map(({ member, formerPath }) => [member, formerPath])).toEqual([
    ['d.qcow2', layerPath(1)],
    ['d_s2.snapshot', layerPath(3)],
  ]);
  expect(snapshots.map(({ name, parent, current }) => [name, parent, current])).toEqual([
    ['s2', null, false],
  ]);
});

test('two disks that stand on one file stay two, each with what was written above it', async () => {
  const path = join(backups, 'a.tar');
  const below = makeLayer(1);
  /** What each state writes, per disk. */
  const above = ['a', 'b'].map((disk, index) =>
    [1, 2].map(state => {
      const layer = join(directory, `${disk}${state}.qcow2`);
      const on = state === 1 ? below : join(directory, `${disk}1.qcow2`);
      run('qemu-img', 'create', '-q', '-f', 'qcow2', '-b', on, '-F', 'qcow2', layer, SIZE);
      run('qemu-io', '-f', 'qcow2', '-c', `write -P ${10 * state + index} ${state * 64}k 64k`, layer);
      return layer;
    }),
  );
  const layerOf = (file: string, stateNumber: number) => ({
    ...{ member: basename(file), stateNumber, formerPath: file, frozenBy: null },
  });
  const described = (number: number, members: MemberRecord[]): Manifest => {
    const common = grown(number, members, { snapshots: [] });
    const disks = above.map((layers, index) => ({
      ...{ ...common.disks[0]!, id: `${index}`.repeat(8), target: `vd${'ab'[index]}` },
      layers: [layerOf(below, 1), ...layers.slice(0, number).map((file, at) => layerOf(file, at + 1))],
    }));
    return { ...common, disks };
  };
  const archives = { path, signal };
  const options = { backupId: BACKUP_ID, compression: null, hash: false };
  for (const number of [1, 2]) {
    const writer =
      number === 1
        ? await ArchiveWriter.create({ ...archives, ...options })
        : await ArchiveAppender.open(archives);
    if (writer instanceof ArchiveAppender) await writer.begin(join(directory, 'tail'));
    for (const file of [...(number === 1 ? [below] : []), ...above.map(layers => layers[number - 1]!)])
      await writer.addFile(basename(file), 'layer', file, { formerPath: file });
    await writer.addBytes(`s${number}.memory`, 'memory', Buffer.alloc(1));
    await writer.addBytes(`000${number}_vm.xml`, 'domain_xml', Buffer.from('<domain/>'));
    await writer.finish({ stateNumber: number, manifest: members => described(number, members) });
    await writer.abort();
  }
  await trim(path, 1);
  const archive = await openArchive(path, signal);
  const shows: string[] = [];
  for (const { layers } of archive.manifest!.disks) {
    const files: string[] = [];
    for (const { member } of layers) {
      files.push(join(directory, `taken-${member}`));
      if (!existsSync(files.at(-1)!)) await archive.extractMember(member, files.at(-1)!, { signal });
    }
    shows.push(shown(...files));
  }
  await archive.close();
  expect(shows).toEqual(above.map(layers => shown(below, ...layers)));
});

describe("a thin clone's", () => {
  const makeBase = () => {
    const base = join(directory, 'template.qcow2');
    run('qemu-img', 'create', '-q', '-f', 'qcow2', base, SIZE);
    run('qemu-io', '-f', 'qcow2', '-c', `write -P ${BASE_BYTE} 0 ${SIZE}`, base);
    return base;
  };

  test('is trimmed without its template, and shows it where it did', async () => {
    const path = join(backups, 'a.tar');
    const base = makeBase();
    const shows = await make(path, { states: 4, base });
    const kept = readFileSync(base);
    rmSync(base);
    await trim(path, 2);
    const archive = await openArchive(path, signal);
    const head = await archive.readHead('d_s0.snapshot');
    await archive.close();
    expect(head.includes(base)).toBe(true);
    expect((await manifestIn(path)).disks[0]!.base).toMatchObject({ path: base, fingerprint: 'sha256:1' });
    writeFileSync(base, kept);
    await expectStates(path, shows, base);
  });

  test('that was smaller than its template for a while shows no more of it when it grew', async () => {
    const path = join(backups, 'a.tar');
    const base = makeBase();
    const shows = await make(path, { states: 3, base, size: number => (number === 1 ? '7M' : SIZE) });
    await trim(path, 1);
    await expectStates(path, shows, base);
  });

  test('of the smallest clusters that can be joined is trimmed, and shows its template where it did', async () => {
    const path = join(backups, 'a.tar');
    const base = makeBase();
    const shows = await make(path, { states: 3, base, layerOptions: () => ['cluster_size=4k'] });
    await trim(path, 1);
    await expectStates(path, shows, base);
  });

  test.each([
    ['clusters of 512 bytes', () => ['cluster_size=512']],
    ['clusters of 2 KiB', () => ['cluster_size=2k']],
    ['clusters of two sizes', (number: number) => (number === 2 ? ['cluster_size=1M'] : [])],
    ['subclusters', () => ['extended_l2=on']],
  ])('with %s is left as it is', async (_, layerOptions) => {
    const path = join(backups, 'a.tar');
    await make(path, { states: 3, base: makeBase(), layerOptions });
    const before = readFileSync(path);
    await expect(trim(path, 1)).rejects.toMatchObject({ msgKey: 'archive_unsupported' });
    expect([readFileSync(path).equals(before), commit.mock.calls]).toEqual([true, []]);
  });
});

describe('a signed one', () => {
  const NODES = ['0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f0011', '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f0012'];
  let made: Promise<ArchiveSigner[]> | undefined;
  const signers = () => {
    made ??= (async () => {
      const fleet = await testAuthority();
      const identities = [await fleet.node(NODES[0]!), await fleet.node(NODES[1]!)];
      return identities.map(
        identity => new ArchiveSigner({ identity: () => identity, isRevoked: () => false }),
      );
    })();
    return made;
  };
  const judged = async (path: string, signer: ArchiveSigner) => {
    const archive = await openArchive(path, signal);
    await archive.close();
    return signer.judge(archive);
  };

  test.each([1, 2])("stays the node's own, of which %d stay, and covers what it covered", async keep => {
    const path = join(backups, 'a.tar');
    const [own] = await signers();
    const shows = await make(path, { kind: 'own', states: 4, hash: true, signers: Array(4).fill(own) });
    expect(await judged(path, own!)).toMatchObject({ trust: 'own', coversContent: true });
    await trim(path, keep, own);
    expect(await judged(path, own!)).toMatchObject({ trust: 'own', coversContent: true, signer: NODES[0] });
    await expectStates(path, shows);
  });

  test.each([1, 2])(
    'in which another node had a part does not become its own, of which %d stay',
    async keep => {
      const path = join(backups, 'a.tar');
      const [own, other] = await signers();
      await make(path, { kind: 'of two', states: 4, signers: [other!, other!, own!, own!] });
      expect(await judged(path, own!)).toMatchObject({ trust: 'fleet' });
      await trim(path, keep, own);
      expect(await judged(path, own!)).toMatchObject({ trust: 'fleet', signer: NODES[0] });
    },
  );
});

describe('refused', () => {
  test.each([1, 3])('when no more than %d restore points are there', async states => {
    const path = join(backups, 'a.tar');
    await make(path, { states });
    const before = readFileSync(path);
    await expect(trim(path, states)).rejects.toMatchObject({ msgKey: 'nothing_to_trim' });
    expect([readFileSync(path).equals(before), files()]).toEqual([true, ['a.tar']]);
  });

  test('of an archive of others', async () => {
    const path = join(backups, 'a.tar');
    run('tar', '-cf', path, '-C', directory, 'backups');
    await expect(trim(path, 1)).rejects.toMatchObject({ msgKey: 'archive_unsupported' });
  });

  test('when somebody wrote to it while the lock on it was lost', async () => {
    const path = join(backups, 'a.tar');
    await make(path, { states: 3 });
    await expect(
      trim(path, 1, undefined, { publish: () => appendFileSync(path, 'more') }),
    ).rejects.toMatchObject({
      msgKey: 'archive_damaged',
    });
    expect(commit).not.toHaveBeenCalled();
  });
});

test('damage of what stays is not carried over', async () => {
  const path = join(backups, 'a.tar');
  await make(path, { states: 3, hash: true });
  const { members } = await manifestIn(path);
  const bytes = readFileSync(path);
  bytes[members.find(({ name }) => name === 's3.memory')!.dataOffset]! ^= 1;
  writeFileSync(path, bytes);
  await expect(trim(path, 2)).rejects.toMatchObject({ msgKey: 'hash_mismatch' });
  expect(readFileSync(path).equals(bytes)).toBe(true);
});

test('an archive that changed behind its commit stays, and the trimmed one goes', async () => {
  const path = join(backups, 'a.tar');
  const other = join(directory, 'grown.tar');
  const shows = await make(other, { states: 4 });
  await make(path, { states: 3 });
  await trim(path, 1, undefined, { replace: () => writeFileSync(path, readFileSync(other)) });
  expect(warn).toHaveBeenCalledWith(expect.stringContaining('was not trimmed'));
  expect(files()).toEqual(['a.tar']);
  await expectStates(path, shows);
});
