import { availableParallelism, hostname, totalmem } from 'node:os';
import type { Versions } from '@virtkeep/node-libvirt';
import { orAborted } from '@virtkeep/shared/abort';
import { reasonOf } from '@virtkeep/shared/errors';
import type { NodeInfo } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import type { Logger } from '@virtkeep/shared/log';
import { MiB } from '@virtkeep/shared/units';
import type { LibvirtLink } from './libvirt/link.ts';

/** What this node is and how it is; the parts that libvirt knows are read when it connects. */
export class NodeStatus {
  readonly #nodeId: string;
  readonly #version: string;
  readonly #link: LibvirtLink;
  readonly #log: Logger;
  #versions: Versions | undefined;
  #draining = false;
  #changed = Promise.withResolvers<void>();

  constructor(options: { nodeId: string; version: string; link: LibvirtLink; log: Logger }) {
    this.#nodeId = options.nodeId;
    this.#version = options.version;
    this.#link = options.link;
    this.#log = options.log;
    options.link.onChange(connected => {
      this.#tell();
      if (connected) void this.#readVersions();
    });
  }

  setDraining(): void {
    this.#draining = true;
    this.#tell();
  }

  /** `basePoolId` is left empty: the inventory knows it. */
  current(): NodeInfo {
    return {
      id: this.#nodeId,
      hostname: hostname(),
      version: this.#version,
      libvirtVersion: this.#versions?.daemon ?? '',
      emulatorVersion: this.#versions?.hypervisor ?? '',
      cpuCount: availableParallelism(),
      memoryCount: BigInt(Math.floor(totalmem() / MiB)),
      basePoolId: '',
      libvirtConnected: this.#link.connected,
      draining: this.#draining,
    };
  }

  /** The status after each change; ends by rejecting with the abort reason. */
  async *watch(signal: AbortSignal): AsyncGenerator<NodeInfo> {
    for (;;) {
      await orAborted(this.#changed.promise, signal);
      yield this.current();
    }
  }

  #tell(): void {
    const { resolve } = this.#changed;
    this.#changed = Promise.withResolvers<void>();
    resolve();
  }

  async #readVersions(): Promise<void> {
    try {
      this.#versions = await this.#link.get().versions();
      this.#tell();
    } catch (error) {
      this.#log.warn('the versions of libvirt cannot be read', { reason: reasonOf(error) });
    }
  }
}
