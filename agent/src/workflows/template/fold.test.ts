// A clone's changes folded into a new image, by copying and by sharing extents; the old images stay byte for byte.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Layer, readLayers } from '../../disks/index.ts';
import type { OperationContext } from '../context.ts';
import type { Effect } from '../effect.ts';
import type { MemberDisk } from './change-plan.ts';
import { foldChanges } from './fold.ts';

const run = (program: string, ...args: string[]) => execFileSync(program, args).toString();
const asRoot = process.getuid?.() === 0 ? describe : describe.skip;
const { signal } = new AbortController();

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'vk-fold-'));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

function contextOf(declared: Effect[]): OperationContext {
  const begin = (effect: Effect) => {
    declared.push(effect);
    return { keep: () => {} };
  };
  return { signal, effects: { begin } } as unknown as OperationContext;
}

const diskOf = async (path: string, format: string): Promise<MemberDisk> => {
  const layers: Layer[] = await readLayers(path, format);
  return { targetDev: 'vda', path, realPath: path, format, block: false, layers };
};

/** @param size of the clone's disk, the template's has 64M */
async function fold(directory: string, format: string, size: string) {
  const [base, overlay, from] = ['base', 'overlay', 'new'].map(name => join(directory, name)) as [
    string,
    string,
    string,
  ];
  run('qemu-img', 'create', '-q', '-f', format, base, '64M');
  run('qemu-io', '-f', format, '-c', 'write -q -P 1 0 16M', base);
  run('qemu-img', 'create', '-q', '-f', 'qcow2', '-b', base, '-F', format, overlay);
  run('qemu-img', 'resize', '-q', '--shrink', overlay, size);
  run('qemu-io', '-f', 'qcow2', '-c', 'write -q -P 2 1M 64k', overlay);
  const before = [base, overlay].map(path => readFileSync(path));
  const declared: Effect[] = [];
  const disk = {
    domainId: 'gold',
    targetDev: 'vda',
    from,
    to: base,
    former: await diskOf(base, format),
    changed: await diskOf(overlay, 'qcow2'),
  };
  await foldChanges(contextOf(declared), disk, () => {});
  for (const [index, path] of [base, overlay].entries())
    expect(readFileSync(path).equals(before[index]!)).toBe(true);
  expect(run('qemu-img', 'compare', '-f', format, '-F', 'qcow2', from, overlay)).toContain('identical');
  expect((await readLayers(from, format)).map(({ path }) => path)).toEqual([from]);
  // what is not the new image is declared and goes, too
  const made = declared.flatMap(effect => (effect.type === 'file' && effect.made ? [effect.path] : []));
  return { from, made };
}

test.each([
  ['qcow2', '64M'],
  ['qcow2', '96M'],
  ['qcow2', '32M'],
  ['raw', '96M'],
])('by copying: %s, the clone of %s', async (format, size) => {
  const directory = join(dir, `${format}-${size}`);
  mkdirSync(directory);
  await fold(directory, format, size);
});

asRoot('a file system with reflinks', () => {
  const mount = () => join(dir, 'xfs');
  beforeAll(() => {
    mkdirSync(mount());
    run('truncate', '-s', '512M', join(dir, 'xfs.img'));
    run('mkfs.xfs', '-q', '-m', 'reflink=1', join(dir, 'xfs.img'));
    run('mount', '-o', 'loop', join(dir, 'xfs.img'), mount());
  });
  afterAll(() => {
    if (existsSync(mount())) run('umount', mount());
  });

  test.each(['64M', '96M', '32M'])('only the changes are written, the clone of %s', async size => {
    const directory = join(mount(), size);
    mkdirSync(directory);
    const { from, made } = await fold(directory, 'qcow2', size);
    expect(made).toEqual([from, `${from}.changes`]);
    expect(run('filefrag', '-v', from)).toContain('shared');
  });
});
