/** Archives that somebody who may write to a pool's backups made by hand, and a VM's whole life after their restore. */
import {
  copyFileSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { type ArchiveTrust, ArchiveWriter, type Manifest } from '../../../agent/src/archive/index.ts';
import { judgedAs, manifestOf } from '../../../agent/src/archive/test-kit.ts';
import { backupService } from '../../../agent/src/grpc/backup-service.ts';
import { savedStateId } from '../../../agent/src/snapshots/index.ts';
import { removeDomain } from '../../../agent/src/workflows/domain/remove-domain.ts';
import { removeSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/remove.ts';
import { revertSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/revert.ts';
import { openFilesOf } from '../../lab/processes.ts';
import { run } from '../../lab/run.ts';
import type { WorkflowLab } from '../backup/lab.ts';

/** All that the devices of the corpus need, in libvirt's own order: it takes a state anew only with the same ones. */
const CONTROLLERS = [
  "<controller type='usb' index='0' model='none'/><controller type='sata' index='0'/>",
  "<controller type='pci' index='0' model='pcie-root'/>",
  ...[1, 2, 3, 4, 5, 6].map(index => `<controller type='pci' index='${index}' model='pcie-root-port'/>`),
  "<controller type='fdc' index='0'/><controller type='virtio-serial' index='0'/>",
].join('');
/** Files of the node. */
const CANARIES = ['secret', 'victim', 'emulator'];
/** In the archive, of the image that a drive shows. */
export const IMAGE_MEMBER = 'cd.iso';
const STATE = 's1';
const CREATED_UNIX = 1_700_000_000;
const FORMER = ['/former/base.qcow2', '/former/top.qcow2'] as const;
const MEMBERS = { base: 'a.qcow2', top: 'a_s1.snapshot', xml: '0001_vm.xml', state: '0001_s1.snapshot.xml' };

/** What an archive has besides a VM with one disk and one saved state. */
export interface Hostile {
  trust: ArchiveTrust;
  /** XML in the definition: at its end, in `<os>`, in `<devices>`. */
  more?: string;
  os?: string;
  devices?: string;
  /** The same of the saved state's domain, with what stands in the state itself; default: as the definition. */
  state?: { memory?: string; devices?: string; more?: string };
  /** In `<devices>` of the XML inside the memory that the VM resumes from. */
  memoryDevices?: string;
  manifest?: (manifest: Manifest) => Manifest;
  /** Files that go into the archive in place of the disk's layers, and as the image of a drive (`IMAGE_MEMBER`). */
  images?: { base?: string; top?: string; drive?: string };
  request?: Partial<StartRestoreRequest>;
}

export class HostileLab {
  readonly #lab: WorkflowLab;
  /** Outside of all pools. */
  readonly outside: string;
  #made = 0;
  /** Files outside that a QEMU had open. */
  readonly #opened = new Set<string>();

  constructor(lab: WorkflowLab, outside: string) {
    this.#lab = lab;
    this.outside = outside;
    this.seal();
    const pool = this.pool;
    symlinkSync(join(outside, 'secret'), join(pool, 'link.iso'));
    symlinkSync(outside, join(pool, 'link'));
  }

  get pool(): string {
    return this.#lab.world.node.pool(0).path;
  }

  /** Writes the archive. @returns its file name */
  async archive(hostile: Hostile): Promise<string> {
    const { dir, node } = this.#lab.world;
    this.#made += 1;
    const filename = `hostile-${this.#made}.tar`;
    const images = [join(dir, `${filename}.base`), join(dir, `${filename}.top`)] as const;
    for (const image of images) await run(['qemu-img', 'create', '-q', '-f', 'qcow2', image, '1M']);
    mkdirSync(join(node.pool(1).path, 'backups'), { recursive: true });
    const path = join(node.pool(1).path, 'backups', filename);
    const signal = AbortSignal.timeout(60_000);
    const writer = await ArchiveWriter.create({
      path,
      backupId: newId(),
      compression: null,
      hash: false,
      signal,
    });
    const uuid = newId();
    const { base = images[0], top = images[1], drive } = hostile.images ?? {};
    await writer.addFile(MEMBERS.base, 'disk', base, { formerPath: FORMER[0] });
    await writer.addFile(MEMBERS.top, 'layer', top, { formerPath: FORMER[1] });
    if (drive !== undefined) await writer.addFile(IMAGE_MEMBER, 'iso', drive, { formerPath: '/x.iso' });
    await writer.addBytes(MEMBERS.xml, 'domain_xml', Buffer.from(domainXml(uuid, hostile, FORMER[1])));
    await writer.addBytes(MEMBERS.state, 'state_xml', Buffer.from(stateXml(uuid, hostile)));
    const { memoryDevices } = hostile;
    if (memoryDevices !== undefined) {
      const xml = domainXml(uuid, { ...hostile, devices: memoryDevices }, FORMER[1]);
      await writer.addBytes('s2.memory', 'memory', memoryFile(xml));
    }
    const memoryMember = memoryDevices === undefined ? null : 's2.memory';
    await writer.finish({
      stateNumber: 1,
      manifest: members => {
        const plain = hostileManifest(
          manifestOf(members, { vm: { uuid, name: 'vm' }, backupId: newId() }),
          memoryMember,
        );
        return hostile.manifest?.(plain) ?? plain;
      },
    });
    return filename;
  }

  show(filename: string): Promise<ShowBackupResponse> {
    const { runner, dependencies, world } = this.#lab;
    const request = { file: { poolId: world.node.pool(1).uuid, filename }, state: '' };
    const context = { signal: AbortSignal.timeout(60_000) };
    return backupService(runner, dependencies).show(request, context as never) as Promise<ShowBackupResponse>;
  }

  /**
   * Shown, restored, started, reverted, freed of its state and removed with its disks. A step that is refused or fails is one
   * that did no harm by itself: what counts is what was touched.
   * @returns what was said, and which steps failed
   */
  async live(filename: string, hostile: Hostile): Promise<{ warnings: string[]; failed: string[] }> {
    const lab = this.#lab;
    lab.dependencies.judge = judgedAs(hostile.trust);
    const said: string[] = [];
    const failed: string[] = [];
    const step = async (
      name: string,
      work: () => Promise<{ warnings?: { text?: string }[] | string[] } | unknown>,
    ) => {
      await work().catch(error => failed.push(`${name}: ${String(error?.message ?? error).slice(0, 300)}`));
    };
    await step('show', async () =>
      said.push(...(await this.show(filename)).warnings.map(({ text }) => text)),
    );
    let domainId = '';
    await step('restore', async () => {
      const { operation, result } = await lab.restore(
        { filename },
        {
          ...{ poolId: '', allowForeign: true },
          ...hostile.request,
        },
      );
      said.push(...operation.warnings);
      domainId = result.domain_id;
    });
    if (domainId === '') return { warnings: said, failed };
    const snapshotId = savedStateId(domainId, { name: STATE, createdUnix: CREATED_UNIX });
    const { dependencies } = lab;
    const start = async () => {
      await lab.world.node.virsh('start', domainId, '--paused');
      this.noteOpened(domainId);
      await lab.world.node.virsh('destroy', domainId);
    };
    await step('start', start);
    const revert = revertSnapshotWorkflow(dependencies, { operationId: '', domainId, snapshotId });
    await step('revert', () => lab.run('revert', revert, [domainId]));
    await step('start again', start);
    const remove = removeSnapshotWorkflow(dependencies, {
      operationId: '',
      domainId,
      snapshotId,
      bandwidth: 0n,
    });
    await step('delete state', () => lab.run('remove_snapshot', remove, [domainId]));
    const request = { domainId, full: true, force: true };
    await step('remove', () => lab.run('remove', removeDomain(dependencies, request), [domainId]));
    return { warnings: said, failed };
  }

  /** Makes what is outside anew, so that each look at it is seen: the time of the last one is the one given here. */
  seal(): void {
    this.remove();
    this.#opened.clear();
    mkdirSync(this.outside, { recursive: true });
    for (const name of CANARIES) {
      const path = join(this.outside, name);
      const text =
        name === 'emulator' ? '#!/bin/sh\nexec qemu-system-x86_64 "$@"\n' : 'of the node\n'.repeat(6000);
      writeFileSync(path, text, { mode: 0o755 });
      utimesSync(path, 1, Date.now() / 1000);
    }
  }

  /** Remembers what the QEMU of a VM has open of what is outside: it may open a file and not read it before its guest does. */
  noteOpened(domainId: string): void {
    for (const path of openFilesOf(domainId))
      if (path.startsWith(this.outside)) this.#opened.add(`QEMU has ${path.slice(this.outside.length + 1)}`);
  }

  /** What was read, changed, made, removed or opened by a QEMU outside since `seal`. */
  unsealed(): string[] {
    const found = readdirSync(this.outside);
    const touched = found.filter(name => {
      const { atimeMs } = statSync(join(this.outside, name));
      return atimeMs !== 1000 || !CANARIES.includes(name);
    });
    const missing = CANARIES.filter(name => !found.includes(name));
    return [...touched, ...missing.map(name => `${name} is gone`), ...this.#opened];
  }

  remove(): void {
    rmSync(this.outside, { recursive: true, force: true });
  }

  /** A file of the pool that is an image like any other. */
  plant(name: string): string {
    const path = join(this.pool, name);
    copyFileSync(join(this.outside, 'secret'), path);
    return path;
  }
}

/** One archive with all of them. */
export function together(attacks: readonly Hostile[]): Hostile {
  const joined = (part: 'more' | 'os' | 'devices') => attacks.map(attack => attack[part] ?? '').join('');
  return {
    trust: attacks.some(({ trust }) => trust !== 'own') ? 'foreign' : 'own',
    ...{ more: joined('more'), os: joined('os'), devices: joined('devices') },
    state: Object.assign({}, ...attacks.map(({ state }) => state)),
    manifest: manifest => attacks.reduce((made, attack) => attack.manifest?.(made) ?? made, manifest),
    request: Object.assign({}, ...attacks.map(({ request }) => request)),
  };
}

function hostileManifest(manifest: Manifest, memoryMember: string | null): Manifest {
  const sides = { nvram: null, tpm: null };
  const layer = (member: string, formerPath: string, frozenBy: string | null) => ({
    ...{ member, stateNumber: 1, frozenBy, formerPath },
  });
  return {
    ...manifest,
    states: manifest.states.map(state => ({ ...state, memoryMember })),
    disks: [
      {
        ...{ id: newId(), target: 'vda', bus: 'virtio', virtualSizeBytes: 2 ** 20, format: 'qcow2' },
        ...{ formerFormat: 'qcow2', formerPath: FORMER[1], poolId: null, poolName: null, base: null },
        layers: [layer(MEMBERS.base, FORMER[0], STATE), layer(MEMBERS.top, FORMER[1], null)],
      },
    ],
    snapshots: [
      {
        ...{ name: STATE, parent: null, current: true, created: new Date(CREATED_UNIX * 1000).toISOString() },
        ...{
          description: null,
          xmlMember: MEMBERS.state,
          memoryMember: null,
          formerMemoryPath: null,
          ...sides,
        },
      },
    ],
  };
}

function domainXml(
  uuid: string,
  { more = '', os = '', devices = '' }: Partial<Hostile>,
  disk: string,
): string {
  return `<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>vm</name><uuid>${uuid}</uuid><memory unit='MiB'>32</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type>${os}</os>
  <features><tcg><tb-cache unit='MiB'>16</tb-cache></tcg></features>
  <devices>${CONTROLLERS}
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${disk}'/><target dev='vda' bus='virtio'/></disk>
    <memballoon model='none'/>${devices}
  </devices>${more}
</domain>`;
}

function stateXml(uuid: string, hostile: Hostile): string {
  const {
    memory = "<memory snapshot='no'/>",
    devices = hostile.devices ?? '',
    more = '',
  } = hostile.state ?? {};
  const targets = [...devices.matchAll(/<target dev='(\w+)' bus/g)].map(([, target]) => target);
  const others = targets.map(target => `<disk name='${target}' snapshot='no'/>`).join('');
  return `<domainsnapshot><name>${STATE}</name><state>${hostile.state?.memory ? 'running' : 'shutoff'}</state><creationTime>${CREATED_UNIX}</creationTime>
  ${memory}
  <disks><disk name='vda' snapshot='external' type='file'><driver type='qcow2'/><source file='${FORMER[1]}'/></disk>${others}</disks>
  ${domainXml(uuid, { ...hostile, devices }, FORMER[0])}${more}
</domainsnapshot>`;
}

/** As libvirt writes it, with a guest of noise. */
function memoryFile(xml: string): Buffer {
  const data = Buffer.alloc(xml.length + 65_536);
  data.write(xml);
  const header = Buffer.alloc(92);
  header.write('LibvirtQemudSave', 'latin1');
  for (const [at, value] of [[16, 2], [20, data.length], [24, 1]] as const) header.writeUInt32LE(value, at); // biome-ignore format: pairs
  return Buffer.concat([header, data, Buffer.alloc(4096, 7)]);
}
