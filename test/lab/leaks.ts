import { readFileSync } from 'node:fs';
import { listWorldDirs } from './paths.ts';
import { listProcesses } from './processes.ts';

/** What a test must leave as it found it. */
export interface Footprint {
  /** Processes of our kind, by "pid command". */
  processes: string[];
  mounts: string[];
  mountNamespaces: string[];
  directories: string[];
}

/** Programs that tests start; others that come and go on the machine are not ours to judge. */
const OURS =
  /qemu-system|libvirtd|virtlogd|swtpm|qemu-storage-daemon|qemu-nbd|(agent|controller)\/src\/main\.ts|sleep infinity/;

/** Takes stock of the machine. */
export function footprint(): Footprint {
  const processes = listProcesses();
  return {
    processes: processes
      .filter(({ command }) => OURS.test(command))
      .map(({ pid, command }) => `${pid} ${command.slice(0, 120)}`),
    mounts: readFileSync('/proc/self/mounts', 'utf8').trim().split('\n'),
    mountNamespaces: [...new Set(processes.map(({ mountNamespace }) => mountNamespace))],
    directories: listWorldDirs(),
  };
}

/** What is there now and was not there before, one line each; empty when nothing leaked. */
export function leaksSince(before: Footprint): string[] {
  const after = footprint();
  const kinds = Object.keys(after) as (keyof Footprint)[];
  return kinds.flatMap(kind =>
    after[kind].filter(item => !before[kind].includes(item)).map(item => `${kind}: ${item}`),
  );
}
