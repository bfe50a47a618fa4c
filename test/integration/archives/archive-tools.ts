/** Archives and images seen through other programs than ours. */
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { run, succeeds } from '../../lab/run.ts';

/** Unpacks an archive with GNU tar into a fresh directory. @returns the directory */
export async function untar(path: string, directory: string): Promise<string> {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  const zstd = path.endsWith('.zst') ? ['--zstd'] : [];
  await run(['tar', ...zstd, '-xf', path, '-C', directory]);
  return directory;
}

/** Names of the members as python's tarfile tells them. */
export async function pythonNames(path: string): Promise<string[]> {
  const script = 'import sys, tarfile; print("\\n".join(tarfile.open(sys.argv[1]).getnames()))';
  const { stdout } = await run(['python3', '-c', script, path]);
  return stdout.trim().split('\n');
}

/**
 * Lets each layer of a disk stand on the one before it, in the given directory.
 * @param joined what each layer there stands on already: one that several states share is joined and checked once
 * @returns path of the top
 */
export async function joinLayers(
  directory: string,
  members: string[],
  joined = new Map<string, string | undefined>(),
): Promise<string> {
  let below: string | undefined;
  for (const member of members) {
    const path = join(directory, member);
    if (!joined.has(path) || joined.get(path) !== below) {
      if (below) await run(['qemu-img', 'rebase', '-u', '-f', 'qcow2', '-b', below, '-F', 'qcow2', path]);
      await run(['qemu-img', 'check', '-q', '-f', 'qcow2', path]);
      joined.set(path, below);
    }
    below = path;
  }
  return below!;
}

/** True when both images show a guest the same bytes and have the same size. */
export async function sameContent(a: string, b: string, formatOfB = 'qcow2'): Promise<boolean> {
  const [sizeA, sizeB] = [await virtualSize(a, 'qcow2'), await virtualSize(b, formatOfB)];
  return (
    sizeA === sizeB && succeeds(['qemu-img', 'compare', '-q', '-U', '-f', 'qcow2', '-F', formatOfB, a, b])
  );
}

async function virtualSize(path: string, format: string): Promise<number> {
  const { stdout } = await run(['qemu-img', 'info', '-U', '--output=json', '-f', format, path]);
  return (JSON.parse(stdout) as { 'virtual-size': number })['virtual-size'];
}

/** Checks the ext4 file system in an image without changing it. @throws CommandFailed when it is not clean */
export async function checkFileSystem(image: string): Promise<void> {
  const raw = `${image}.raw`;
  try {
    await run(['qemu-img', 'convert', '-U', '-f', 'qcow2', '-O', 'raw', image, raw]);
    await run(['e2fsck', '-fn', raw]);
  } finally {
    rmSync(raw, { force: true });
  }
}

/** Bytes of a file inside the ext4 file system of an image. */
export async function fileInside(image: string, path: string): Promise<string> {
  const raw = `${image}.raw`;
  try {
    await run(['qemu-img', 'convert', '-U', '-f', 'qcow2', '-O', 'raw', image, raw]);
    return (await run(['debugfs', '-R', `cat ${path}`, raw])).stdout;
  } finally {
    rmSync(raw, { force: true });
  }
}

/** The same of a file system that is checked, too. @throws CommandFailed when it is not clean */
export async function fileInsideSound(image: string, path: string): Promise<string> {
  const raw = `${image}.raw`;
  try {
    await run(['qemu-img', 'convert', '-U', '-f', 'qcow2', '-O', 'raw', image, raw]);
    await run(['e2fsck', '-fn', raw]);
    return (await run(['debugfs', '-R', `cat ${path}`, raw])).stdout;
  } finally {
    rmSync(raw, { force: true });
  }
}

/** As `fileInside` of several files by one look, '' where there is none; each is text that ends with a line end, or is empty. */
export async function filesInside(image: string, paths: string[]): Promise<string[]> {
  const raw = `${image}.raw`;
  try {
    await run(['qemu-img', 'convert', '-U', '-f', 'qcow2', '-O', 'raw', image, raw]);
    const input = paths.map(path => `cat ${path}\n`).join('');
    const { stdout } = await run(['debugfs', '-f', '-', raw], { input });
    // it tells each command before what that one says
    return stdout.split(/^debugfs: cat .*\n/m).slice(1);
  } finally {
    rmSync(raw, { force: true });
  }
}

/** The file `note` on the first disk of each state of an archive, from the first on; the file systems are checked. */
export async function notesOf(path: string, directory: string, states: number): Promise<string[]> {
  await untar(path, directory);
  const notes: string[] = [];
  const joined = new Map<string, string | undefined>();
  for (let state = 1; state <= states; state += 1) {
    const name = `${String(state).padStart(4, '0')}_manifest.json`;
    const manifest = JSON.parse(readFileSync(join(directory, name), 'utf8')) as {
      disks: { layers: { member: string }[] }[];
    };
    const members = manifest.disks[0]!.layers.map(({ member }) => member);
    const image = await joinLayers(directory, members, joined);
    await checkFileSystem(image);
    notes.push((await fileInside(image, 'note')).trim());
  }
  return notes;
}
