// Small emulated domains without an operating system: they start in under half a second and need 32 MiB.

import { execFile } from 'node:child_process';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Domain, Libvirt } from '../src/index.ts';

export const run = promisify(execFile);

export interface GuestOptions {
  uuid?: string;
  devices?: string;
  /** Further elements of the domain, e.g. qemu:override. */
  extra?: string;
}

export function guestXml(name: string, { uuid = '', devices = '', extra = '' }: GuestOptions = {}): string {
  return `<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>${name}</name>${uuid && `<uuid>${uuid}</uuid>`}
  <memory unit='MiB'>32</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <features><acpi/></features>
  <devices><controller type='usb' model='none'/><memballoon model='none'/>${devices}</devices>${extra}
</domain>`;
}

export function diskXml(path: string, target: string): string {
  return `<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${path}'/>
    <target dev='${target}' bus='virtio'/></disk>`;
}

/** Makes a qcow2 file. */
export async function qcow2(dir: string, name: string, size = '8M'): Promise<string> {
  const path = join(dir, name);
  await run('qemu-img', ['create', '-q', '-f', 'qcow2', path, size]);
  return path;
}

/** Ends and forgets a domain, whatever is left of it. */
export async function remove(domain: Domain): Promise<void> {
  if (await domain.isActive().catch(() => false)) await domain.destroy().catch(() => {});
  // MANAGED_SAVE | SNAPSHOTS_METADATA | CHECKPOINTS_METADATA
  await domain.undefine(1 | 2 | 16).catch(() => {});
}

/** Removes every domain of a connection. */
export async function removeAll(libvirt: Libvirt): Promise<void> {
  for (const domain of await libvirt.domains()) await remove(domain);
}

type Answer = (args: Record<string, unknown>) => unknown;

/**
 * A guest agent without a guest: QEMU's agent port dials this server. A command answers what its function returns (or resolves
 * to), or an error; one that resolves to undefined is never answered.
 */
export class ScriptedAgent {
  readonly path: string;
  readonly commands: Record<string, Answer>;
  readonly seen: string[] = [];
  readonly #sockets = new Set<Socket>();
  readonly #server: Server = createServer(socket => this.#serve(socket));

  constructor(path: string, commands: Record<string, Answer>) {
    this.path = path;
    this.commands = { 'guest-sync': ({ id }) => id, 'guest-ping': () => ({}), ...commands };
  }

  listen(): Promise<void> {
    return new Promise(resolve => this.#server.listen(this.path, resolve));
  }

  close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    return new Promise(resolve => this.#server.close(() => resolve()));
  }

  /** Devices and override of a domain that talks to this agent. */
  get guest(): Required<Pick<GuestOptions, 'devices' | 'extra'>> {
    return {
      devices: `<controller type='virtio-serial'/><channel type='unix'><source mode='connect' path='${this.path}'/>
        <target type='virtio' name='org.qemu.guest_agent.0'/></channel>`,
      extra: `<qemu:override><qemu:device alias='channel0'><qemu:frontend>
        <qemu:property name='driver' type='string' value='virtconsole'/></qemu:frontend></qemu:device></qemu:override>`,
    };
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => this.#sockets.delete(socket));
    let text = '';
    socket.on('data', data => {
      text += data.toString('latin1').replaceAll('\xff', '');
      for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n')) {
        void this.#answer(socket, text.slice(0, end));
        text = text.slice(end + 1);
      }
    });
  }

  async #answer(socket: Socket, line: string): Promise<void> {
    if (!line.trim()) return;
    const { execute, arguments: args = {} } = JSON.parse(line);
    this.seen.push(execute);
    const command = this.commands[execute];
    if (!command) {
      const desc = `The command ${execute} has not been found`;
      socket.write(`${JSON.stringify({ error: { class: 'CommandNotFound', desc } })}\n`);
      return;
    }
    const result = await command(args);
    if (result !== undefined) socket.write(`${JSON.stringify({ return: result })}\n`);
  }
}
