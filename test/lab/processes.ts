import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

export interface Process {
  pid: number;
  /** Arguments, separated by blanks. */
  command: string;
  /** "mnt:[4026531832]": which mount namespace it is in. */
  mountNamespace: string;
}

/** All processes of this machine; one that ends while we look is left out. */
export function listProcesses(): Process[] {
  const found: Process[] = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const command = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
      const state = readFileSync(`/proc/${name}/stat`, 'utf8').match(/\) (\S)/)?.[1];
      if (command === '' || state === 'Z') continue; // kernel thread, zombie
      found.push({ pid: Number(name), command, mountNamespace: readlinkSync(`/proc/${name}/ns/mnt`) });
    } catch {
      // ended meanwhile
    }
  }
  return found;
}

/** Files that the QEMU of a running VM has open. @throws Error when there is none */
export function openFilesOf(domainId: string): string[] {
  const qemu = listProcesses().find(({ command }) => command.includes(`-uuid ${domainId}`));
  if (qemu === undefined) throw new Error(`no QEMU runs for ${domainId}`);
  const directory = `/proc/${qemu.pid}/fd`;
  return readdirSync(directory).flatMap(descriptor => {
    try {
      return readlinkSync(`${directory}/${descriptor}`);
    } catch {
      return []; // closed meanwhile
    }
  });
}

/** Mount namespace of a process; undefined when the process is gone. */
export function mountNamespaceOf(pid: number | 'self'): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/mnt`);
  } catch {
    return undefined;
  }
}

/** Sends a signal; a process that is gone already is no error. */
export function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/**
 * True while the process runs; a zombie has ended, unless some of its threads still have to: one that the disk keeps waiting holds
 * the ports and locks of all.
 */
export function isRunning(pid: number): boolean {
  try {
    const state = readFileSync(`/proc/${pid}/stat`, 'utf8').match(/\) (\S)/)?.[1];
    return state !== 'Z' || readdirSync(`/proc/${pid}/task`).length > 1;
  } catch {
    return false;
  }
}
