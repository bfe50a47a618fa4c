/** A lab of templates: guests that are off, their disks written and read from outside, clones made by the service. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { TemplateServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import { newId } from '@virtkeep/shared/ids';
import type { CallContext } from 'nice-grpc-common';
import { type DomainMetadata, parseDomain } from '../../../agent/src/domain-xml/index.ts';
import { templateService } from '../../../agent/src/grpc/template-service.ts';
import { writeMetadata } from '../../../agent/src/snapshots/index.ts';
import { removeDomain } from '../../../agent/src/workflows/domain/remove-domain.ts';
import { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { WorkflowLab } from '../backup/lab.ts';

const CALL = { signal: new AbortController().signal } as CallContext;

export interface CloneResult {
  domain_id: string;
  name: string;
  disks: { id: string; path: string; pool_id: string; target_dev: string }[];
  warnings: string[];
}

export class TemplateLab {
  readonly lab: WorkflowLab;

  private constructor(lab: WorkflowLab) {
    this.lab = lab;
  }

  static async start(): Promise<TemplateLab> {
    return new TemplateLab(await WorkflowLab.start());
  }

  stop(): Promise<void> {
    return this.lab.stop();
  }

  get service(): TemplateServiceImplementation {
    return templateService(this.lab.runner, this.lab.dependencies);
  }

  /** Makes a guest that is off a template. */
  async mark(guest: Guest, version = 1): Promise<void> {
    await this.note(guest, { template: true, templateVersion: version });
  }

  async note(guest: Guest, change: Partial<DomainMetadata>): Promise<void> {
    const domain = await this.lab.libvirt.domainByUuid(await guest.uuid());
    await writeMetadata(domain, { ...(await this.metadata(guest)), ...change });
  }

  async metadata(guest: Guest): Promise<DomainMetadata> {
    return parseDomain(await guest.xml(true)).metadata;
  }

  async clone(
    original: Guest,
    request: { thin?: boolean; name?: string; poolId?: string; description?: string } = {},
  ): Promise<{ guest: Guest; result: CloneResult; operation: Operation }> {
    const { thin = false, name = '', poolId = '', description = '' } = request;
    const { id } = (await this.service.clone(
      {
        operationId: newId(),
        domainId: await original.uuid(),
        newDomainId: newId(),
        name,
        thin,
        poolId,
        description,
      },
      CALL,
    )) as Operation;
    const operation = await this.lab.ended(id);
    const result = JSON.parse(operation.resultJson) as CloneResult;
    return { guest: this.guest(result.name), result, operation };
  }

  async change(clone: Guest): Promise<{ template_id: string; version: number; clones: string[] }> {
    const started = await this.service.change({ operationId: newId(), domainId: await clone.uuid() }, CALL);
    return JSON.parse((await this.lab.ended((started as Operation).id)).resultJson);
  }

  async remove(guest: Guest, options: { full?: boolean; force?: boolean } = {}): Promise<void> {
    const { full = true, force = false } = options;
    const domainId = await guest.uuid();
    const recipe = removeDomain(this.lab.dependencies, { domainId, full, force });
    await this.lab.run('remove_domain', recipe, [domainId]);
  }

  guest(name: string): Guest {
    return new Guest(this.lab.world.node, name);
  }
}

/** Writes a text into the first disk of a guest that is off, where no file system looks (or at `offset`). */
export async function scribble(path: string, text: string, offset = 0): Promise<void> {
  const pattern = [...Buffer.from(text)];
  // one byte a command: qemu-io knows patterns of one byte only
  const commands = pattern.flatMap((byte, index) => [
    '-c',
    `write -q -P ${byte} ${offset + index * 512} 512`,
  ]);
  await run(['qemu-io', '-f', 'qcow2', ...commands, path]);
}

/** The text that `scribble` wrote, read through all layers. */
export async function scribbled(path: string, length: number, offset = 0): Promise<string> {
  const raw = `${path}.read`;
  // qemu-img counts what it skips, too
  await run([
    'qemu-img',
    'dd',
    '-U',
    '-f',
    'qcow2',
    '-O',
    'raw',
    `if=${path}`,
    `of=${raw}`,
    'bs=512',
    `skip=${offset / 512}`,
    `count=${offset / 512 + length}`,
  ]);
  const { stdout } = await run([
    'sh',
    '-c',
    'od -An -v -tu1 -w512 "$1" | awk \'{print $1}\'; rm "$1"',
    'sh',
    raw,
  ]);
  return String.fromCharCode(...stdout.trim().split('\n').map(Number));
}

/** Files of a disk, top to bottom. */
export async function chainOf(path: string): Promise<string[]> {
  const { stdout } = await run(['qemu-img', 'info', '-U', '--backing-chain', '--output=json', path]);
  return (JSON.parse(stdout) as { filename: string }[]).map(layer => layer.filename);
}

export async function diskPath(guest: Guest, target = 'vda'): Promise<string> {
  return (await guest.disks())[target]!;
}

/** Checks the metadata of an image. @throws CommandFailed */
export async function checkImages(...paths: string[]): Promise<void> {
  for (const path of paths) if (existsSync(path)) await run(['qemu-img', 'check', '-q', '-f', 'qcow2', path]);
}

export const inPool = (lab: WorkflowLab, pool: number, name: string) =>
  join(lab.world.node.pool(pool).path, name);
