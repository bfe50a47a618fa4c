/**
 * Who left what behind. A world's directory bears the pid of the test process that made it (`/var/tmp/vk-<pid>-…`), and
 * all that belongs to a world mentions that directory: in its command line, or among its mounts when it lives in a node.
 * So leaks are found, and swept, without a look at anything else on the machine.
 */
import { readFileSync, rmSync } from 'node:fs';
import { basename } from 'node:path';
import { listWorldDirs, worldPrefix } from './paths.ts';
import { isRunning, listProcesses, type Process, signalProcess } from './processes.ts';
import { run, waitFor } from './run.ts';

/** Directories, mounts and processes of the worlds of one test process, one line each; empty when nothing is left. */
export const leaksOf = (ownerPid: number): string[] => leaksBelow(worldPrefix(ownerPid));

/** @param prefix of the name of a world's directory */
function leaksBelow(prefix: string): string[] {
  return [
    ...listWorldDirs()
      .filter(dir => basename(dir).startsWith(prefix))
      .map(dir => `directory: ${dir}`),
    ...mountsBelow(prefix).map(path => `mount: ${path}`),
    ...processesOf(prefix).map(({ pid, command }) => `process: ${pid} ${command.slice(0, 150)}`),
  ];
}

/**
 * @param prefix of the name of the worlds' directories; all of this test process when absent
 * @throws Error that lists what they have left
 */
export function expectNoLeaks(prefix = worldPrefix(process.pid)): void {
  const leaks = leaksBelow(prefix);
  if (leaks.length > 0) throw new Error(`left behind:\n  ${leaks.join('\n  ')}`);
}

/** Removes what test processes that are gone have left (killed runs). @returns what was removed, one line each */
export async function sweepOrphans(): Promise<string[]> {
  const removed: string[] = [];
  for (const dir of listWorldDirs()) {
    const owner = Number(basename(dir).match(/^vk-(\d+)-/)?.[1]);
    if (isRunning(owner)) continue;
    removed.push(...leaksOf(owner));
    await waitFor(`the end of the processes of ${dir}`, () => {
      const left = processesOf(worldPrefix(owner));
      for (const { pid } of left) signalProcess(pid, 'SIGKILL');
      return left.length === 0;
    }, 120_000); // biome-ignore format: short
    for (const mount of mountsBelow(dir)) await run(['umount', '--lazy', mount]);
    rmSync(dir, { recursive: true, force: true });
  }
  return [...new Set(removed)];
}

/** Mount points of this machine whose path contains the text, innermost first. */
function mountsBelow(text: string): string[] {
  const lines = readFileSync('/proc/self/mounts', 'utf8').trim().split('\n');
  return lines
    .map(line => line.split(' ')[1]!)
    .filter(path => path.includes(text))
    .reverse();
}

function processesOf(prefix: string): Process[] {
  return listProcesses().filter(({ pid, command }) => command.includes(prefix) || livesInNodeOf(prefix, pid));
}

/**
 * A process of a node has the node's own /run/libvirt. No other mount tells: one that a test made in the machine's
 * namespace is seen by every process.
 */
function livesInNodeOf(prefix: string, pid: number): boolean {
  try {
    const lines = readFileSync(`/proc/${pid}/mountinfo`, 'utf8').split('\n');
    return lines
      .map(line => line.split(' '))
      .some(([, , , root, at]) => at === '/run/libvirt' && root?.includes(prefix));
  } catch {
    return false; // ended meanwhile
  }
}
