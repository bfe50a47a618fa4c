import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { ManifestDisk } from '../../archive/index.ts';
import { samplePool } from '../../pools/sample-pool.ts';
import { MERGED_AT_ONCE } from '../archives/image-stack.ts';
import type { Effect } from '../effect.ts';
import { extractFiles, joinLayers, makeFirmware } from './files.ts';

const MIB = 1024 * 1024;
const LAYERS = MERGED_AT_ONCE + 12;

const home = mkdtempSync(join(tmpdir(), 'virtkeep-join-'));
const made = join(home, 'made');
const dir = join(home, 'joined');
beforeAll(makeLayers);
beforeEach(() => cpSync(made, dir, { recursive: true }));
afterEach(() => rmSync(dir, { recursive: true }));
afterAll(() => rmSync(home, { recursive: true }));

const at = (index: number) => join(dir, `l${index}.qcow2`);
const pool = samplePool('p');
const layer = (index: number) => ({ member: `l${index}`, path: at(index), pool, sizeBytes: 1 });

/** Layers as they come out of an archive: each writes its number to its block and to the first one; the disk grew. */
function makeLayers(): void {
  mkdirSync(made);
  for (let index = 0; index < LAYERS; index++) {
    const size = index < LAYERS / 2 ? LAYERS : LAYERS + 8;
    const path = join(made, `l${index}.qcow2`);
    execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', path, `${size * 64}K`]);
    const writes = [index, 0].flatMap(block => ['-c', `write -q -P ${index + 1} ${block * 64}K 64K`]);
    execFileSync('qemu-io', [...writes, path]);
  }
}

function joined(starts: number[]): Promise<void> {
  const layers = starts.map((start, file) => {
    const end = starts[file + 1] ?? LAYERS;
    return {
      ...layer(start),
      merged: Array.from({ length: end - start - 1 }, (_, up) => layer(start + 1 + up)),
    };
  });
  const disk = { target: 'vda', virtualSizeBytes: (LAYERS + 8) * 64 * 1024 } as ManifestDisk;
  const fileOf = Array.from({ length: LAYERS }, (_, index) => starts.findLastIndex(start => start <= index));
  const context = {
    signal: new AbortController().signal,
    progress: { total: () => {}, done: () => {} },
  } as unknown as Parameters<typeof joinLayers>[0];
  const plan = { placement: { disks: [{ disk, pool, layers, fileOf }] }, bases: new Map() };
  // nobody is asked who else may use one: only that it is gone is noted
  const keep = (path: string) => ({ keep: () => expect(existsSync(path)).toBe(false) });
  const upper = layers.flatMap(({ merged }) => merged).map(({ path }) => [path, keep(path)] as const);
  const passing = new Map(upper) as unknown as Parameters<typeof joinLayers>[3];
  return joinLayers(context, '/a.tar', plan as unknown as Parameters<typeof joinLayers>[2], passing);
}

/** The disk as of the layer `index` is what the file shows. */
function expectShows(path: string, index: number): void {
  const reads = Array.from(
    { length: index },
    (_, block) => `read -q -P ${block + 2} ${(block + 1) * 64}K 64K`,
  );
  const commands = [`read -q -P ${index + 1} 0 64K`, ...reads].flatMap(command => ['-c', command]);
  const said = execFileSync('qemu-io', ['-r', '-f', 'qcow2', ...commands, path], {
    maxBuffer: MIB,
  }).toString();
  expect(said).toBe('');
}

test('the layers of one disk are declared as a stack of their own, and images as none', async () => {
  const declared: Effect[] = [];
  const begin = (effect: Effect) => {
    declared.push(effect);
    return { keep: () => declared.splice(declared.indexOf(effect), 1), undo: async () => {} };
  };
  const context = { effects: { begin }, progress: { total: () => {}, done: () => {} } };
  const place = (name: string) => ({ ...layer(0), path: join(dir, name) });
  const placement = {
    disks: [
      {
        layers: [
          { ...place('a0'), merged: [place('a1')] },
          { ...place('a2'), merged: [] },
        ],
      },
      { layers: [{ ...place('b0'), packed: place('b1'), merged: [] }] },
    ],
    images: [place('i.iso')],
    memory: { directory: dir },
  };
  type Given = Parameters<typeof extractFiles>;
  await extractFiles(
    context as unknown as Given[0],
    {
      archive: { members: [], extractMember: async () => {} },
      state: { memoryMember: null },
    } as unknown as Given[1],
    { placement, identity: {}, states: [] } as unknown as Given[2],
    'chain',
  );
  const stacks = declared.map(effect => effect.type === 'file' && [effect.path, effect.stack]);
  const [a, b] = ['a0', 'b0'].map(name => join(dir, name));
  expect(stacks).toEqual([
    [a, a],
    [join(dir, 'a1'), a],
    [join(dir, 'a2'), a],
    [join(dir, 'b1'), b],
    [join(dir, 'i.iso'), undefined],
  ]);
});

test('UEFI variables are an image of their own, or none', async () => {
  type Given = Parameters<typeof makeFirmware>;
  const written = (nvram: Buffer, name: string) =>
    makeFirmware(
      {
        effects: { begin: () => ({ keep: () => {}, undo: async () => {} }) },
        signal: new AbortController().signal,
      } as unknown as Given[0],
      { nvramDirectory: dir, swtpmDirectory: dir },
      { name, uuid: name } as Given[2],
      { nvram, tpm: null },
    );
  const image = (name: string, ...more: string[]) => {
    execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...more, join(dir, name), '64K']);
    return readFileSync(join(dir, name));
  };
  const hostile = image('hostile', '-b', '/etc/passwd', '-F', 'raw');
  await expect(written(hostile, 'a')).rejects.toEqual(expect.objectContaining({ msgKey: 'qemu_img_failed' }));
  expect(await written(image('plain'), 'b')).toBe(join(dir, 'b_VARS.fd'));
  expect(await written(Buffer.from('variables'), 'c')).toBe(join(dir, 'c_VARS.fd'));
});

describe('the layers of a long life', () => {
  test('become one image', async () => {
    await joined([0]);
    expectShows(at(0), LAYERS - 1);
    expect(existsSync(at(1))).toBe(false);
    const info = execFileSync('qemu-img', ['info', '--output=json', at(0)]).toString();
    expect(JSON.parse(info)).toMatchObject({ 'virtual-size': (LAYERS + 8) * 64 * 1024 });
  });

  test('become few, each with what was there when a state kept it', async () => {
    await joined([0, 5, 9]);
    expectShows(at(0), 4);
    expectShows(at(5), 8);
    expectShows(at(9), LAYERS - 1);
    expect(existsSync(at(6))).toBe(false);
  });
});
