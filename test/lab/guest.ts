import { closeSync, copyFileSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { DEBIAN_CMDLINE, type DebianVariant, debianGuest } from './debian-guest.ts';
import { type GuestXmlOptions, guestXml } from './domain-xml.ts';
import type { LabNode } from './node.ts';
import { waitFor } from './run.ts';
import { tinyGuest } from './tiny-guest.ts';

export interface ExecResult {
  exitCode: number | undefined;
  stdout: string;
  stderr: string;
}

/** Each look costs an emulated guest more than it costs us. */
const EXEC_POLL_MS = 200;
/** A port that opened before somebody listened for it is found so much later, at the most. */
const LONGEST_EVENT_SECONDS = 4;
/** So long may an answer of its agent take: a guest on a busy machine is slow, not silent. */
const ANSWER_SECONDS = 60;

/**
 * For a guest's shell: waits until a disk that is being plugged in can be opened. Its name is there a little sooner.
 * @param path as the guest names it
 */
export const untilThere = (path: string): string =>
  `i=0; until head -c 1 ${path} >/dev/null 2>&1; do i=$((i + 1)); [ $i -lt 1000 ] || exit 1; sleep 0.1; done`;

/** A guest on a lab node, driven through virsh: independent of the code under test. */
export class Guest {
  readonly node: LabNode;
  readonly name: string;

  constructor(node: LabNode, name: string) {
    this.node = node;
    this.name = name;
  }

  async start(): Promise<this> {
    await this.node.virsh('start', this.name);
    return this;
  }

  uuid(): Promise<string> {
    return this.node.virsh('domuuid', this.name).then(text => text.trim());
  }

  /** "running", "shut off", "paused" … as virsh says it. */
  state(): Promise<string> {
    return this.node.virsh('domstate', this.name).then(text => text.trim());
  }

  /** Definition: of the running guest, or with `inactive` the one of the next start. */
  xml(inactive = false): Promise<string> {
    return this.node.virsh('dumpxml', this.name, '--security-info', ...(inactive ? ['--inactive'] : []));
  }

  /** Names of the saved states, oldest first. */
  async snapshots(): Promise<string[]> {
    const text = await this.node.virsh('snapshot-list', this.name, '--name', '--topological');
    return text
      .split('\n')
      .map(line => line.trim())
      .filter(Boolean);
  }

  /** Source files of the disks by target, as they are now. */
  async disks(): Promise<Record<string, string>> {
    const text = await this.node.virsh('domblklist', this.name);
    return Object.fromEntries(text.split('\n').map(line => line.trim().split(/\s+/, 2) as [string, string]));
  }

  /** Takes a disk from the running guest and its definition: virsh does not wait until a busy guest has let go of it. */
  async withoutDisk(target: string): Promise<void> {
    await this.node.virsh('detach-disk', this.name, target, '--live', '--config');
    await waitFor(`${target} to go`, async () => !(target in (await this.disks())), 120_000);
  }

  /** Pid of its QEMU process, undefined when it is off. Stays the same as long as the guest was not restarted. */
  qemuPid(): number | undefined {
    const flag = new RegExp(`guest=${this.name},`);
    return this.node.processes().find(({ command }) => command.includes('qemu-system') && flag.test(command))
      ?.pid;
  }

  /** Calls the guest agent. @throws CommandFailed with libvirt's message */
  async agent<T = unknown>(
    execute: string,
    args?: Record<string, unknown>,
    timeoutSeconds = ANSWER_SECONDS,
  ): Promise<T> {
    const request = JSON.stringify(args ? { execute, arguments: args } : { execute });
    const answer = await this.node.virsh(
      'qemu-agent-command',
      this.name,
      request,
      '--timeout',
      String(timeoutSeconds),
    );
    return (JSON.parse(answer) as { return: T }).return;
  }

  /** Waits until the agent answers. Emulated guests on a busy machine need patience. */
  async waitForAgent(timeoutMs = 600_000): Promise<this> {
    let seconds = 1;
    const looksAgain = async () => {
      if (await answers(this)) return true;
      // it is asked again when it opens its port, not all the time; some seconds later too, for it may have done so in between
      const opens = ['--domain', this.name, '--event', 'agent-lifecycle', '--timeout', String(seconds)];
      await this.node.virsh('event', ...opens).catch(() => {});
      seconds = Math.min(2 * seconds, LONGEST_EVENT_SECONDS);
      return false;
    };
    await waitFor(`the guest agent of ${this.name}`, looksAgain, timeoutMs, 50);
    return this;
  }

  /** Waits until the agent does not answer any more. */
  async waitForNoAgent(timeoutMs = 600_000): Promise<void> {
    const silent = async () => !(await answers(this));
    await waitFor(`the silence of the guest agent of ${this.name}`, silent, timeoutMs, 50);
  }

  /** Runs a program in the guest to its end. @throws Error when it does not end in time */
  async exec(path: string, args: string[] = [], timeoutMs = 180_000): Promise<ExecResult> {
    const request = { path, arg: args, 'capture-output': true };
    const patience = Math.min(ANSWER_SECONDS, Math.ceil(timeoutMs / 1000));
    const { pid } = await this.agent<{ pid: number }>('guest-exec', request, patience);
    type Status = { exited: boolean; exitcode?: number; 'out-data'?: string; 'err-data'?: string };
    const status = await waitFor(
      `${path} in ${this.name}`,
      async () => {
        const now = await this.agent<Status>('guest-exec-status', { pid }, patience);
        return now.exited ? now : undefined;
      },
      timeoutMs,
      EXEC_POLL_MS,
    );
    const text = (data?: string) => Buffer.from(data ?? '', 'base64').toString();
    return { exitCode: status.exitcode, stdout: text(status['out-data']), stderr: text(status['err-data']) };
  }

  /** Runs a shell line in the guest and returns its output. @throws Error when it fails */
  async sh(script: string, timeoutMs = 180_000): Promise<string> {
    const result = await this.exec('/bin/sh', ['-c', script], timeoutMs);
    if (result.exitCode !== 0)
      throw new Error(`${this.name}: ${script}: ${result.exitCode} ${result.stderr}`);
    return result.stdout;
  }

  /**
   * Types on its console, a pseudo-terminal, which stays open during the work: QEMU reads nothing of one that nobody has open.
   * Who reads there has it, also where no agent answers.
   */
  async typing<T>(text: string, work: () => Promise<T>): Promise<T> {
    const terminal = openSync(await this.node.virsh('ttyconsole', this.name), 'r+');
    try {
      writeSync(terminal, text);
      return await work();
    } finally {
      closeSync(terminal);
    }
  }

  /** Starts a program in the guest that goes on running: no output is captured. */
  async background(path: string, args: string[] = []): Promise<void> {
    await this.agent('guest-exec', { path, arg: args });
  }

  async destroy(): Promise<void> {
    await this.node.virsh('destroy', this.name);
  }
}

const answers = (guest: Guest): Promise<boolean> =>
  guest.agent('guest-ping', undefined, 3).then(
    () => true,
    () => false,
  );

/** Defines a guest from a definition. @param options further ones of `virsh define` */
export async function defineGuest(
  node: LabNode,
  name: string,
  xml: string,
  options: readonly string[] = [],
): Promise<Guest> {
  const file = join(node.dir, `define-${name.replaceAll('/', '_')}.xml`);
  writeFileSync(file, xml);
  await node.virsh('define', file, ...options);
  return new Guest(node, name);
}

/** Defines a tiny guest; it is off until `start`. */
export async function defineTinyGuest(node: LabNode, options: Omit<GuestXmlOptions, 'boot'>): Promise<Guest> {
  return defineGuest(node, options.name, guestXml({ ...options, boot: await tinyGuest() }));
}

/** Defines a Debian guest with a root disk of its own (vda) before the other disks; it is off until `start`. */
export async function defineDebianGuest(
  node: LabNode,
  options: Omit<GuestXmlOptions, 'boot'>,
  variant: DebianVariant = 'plain',
): Promise<Guest> {
  const root = join(node.pool(0).path, `${options.name}-root.qcow2`);
  copyFileSync(await debianGuest(variant), root);
  const disks = [{ path: root }, ...(options.disks ?? [])];
  const cmdline = [DEBIAN_CMDLINE, options.cmdline ?? ''].join(' ').trimEnd();
  const boot = await tinyGuest();
  return defineGuest(node, options.name, guestXml({ memoryMiB: 256, ...options, boot, disks, cmdline }));
}
