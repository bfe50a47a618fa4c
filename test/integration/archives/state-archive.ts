/**
 * An archive of many states of a guest, made without the code that makes increments: the saved states by virsh, the file
 * by the archive's writer, the manifests by hand from docs/archive-format.md.
 */
import { copyFileSync, mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { newId } from '@virtkeep/shared/ids';
import { encodeManifest } from '../../../agent/src/archive/format/manifest.ts';
import {
  ArchiveWriter,
  type Manifest,
  type MemberKind,
  type MemberRecord,
  memberNames,
} from '../../../agent/src/archive/index.ts';
import { diskId } from '../../../agent/src/disks/index.ts';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';

interface Piece {
  name: string;
  kind: MemberKind;
  source: { path: string; formerPath: string } | { text: string };
}

export interface TakeOptions {
  /** With the guest's memory, saved in this directory. */
  memoryIn?: string;
}

export class StateArchive {
  readonly backupId = newId();
  readonly #guest: Guest;
  readonly #scratch: string;
  /** Per state its members and its manifest, oldest first. */
  readonly #states: { pieces: Piece[]; draft: Manifest }[] = [];

  constructor(guest: Guest, scratch: string) {
    this.#guest = guest;
    this.#scratch = join(scratch, `states-${this.backupId}`);
    mkdirSync(this.#scratch);
  }

  stateName(stateNumber: number): string {
    return `backup_2026112100000${stateNumber}Z`;
  }

  /** Makes a state of all disks and keeps what an increment would append. */
  async take({ memoryIn }: TakeOptions = {}): Promise<void> {
    const [guest, number] = [this.#guest, this.#states.length + 1];
    const name = this.stateName(number);
    const [xml, disks] = [await guest.xml(true), await guest.disks()];
    const running = (await guest.state()) === 'running';
    const description = `virtkeep backup=${this.backupId} state=${number}`;
    const memoryPath = memoryIn === undefined ? null : join(memoryIn, `${name}.memory`);
    const how = memoryPath
      ? ['--memspec', `file=${memoryPath}`, '--live']
      : ['--disk-only', ...(running ? ['--quiesce'] : [])];
    await guest.node.virsh('snapshot-create-as', guest.name, name, description, ...how);

    const pieces: Piece[] = [];
    const entries: Manifest['disks'] = [];
    for (const [target, path] of Object.entries(disks)) {
      if (path.startsWith('/')) entries.push(await this.#disk(pieces, { number, state: name }, target, path));
    }
    const memoryMember = memoryPath && this.#file(pieces, memberNames.memory(name), 'memory', memoryPath);
    const xmlMember = text(pieces, memberNames.domainXml(number, guest.name), 'domain_xml', xml);
    const snapshots = await this.#snapshots(pieces, number, memoryMember);
    const last = this.#states.at(-1)?.draft;
    const state = {
      number,
      name,
      consistency: memoryPath ? ('memory' as const) : running ? ('quiesced' as const) : ('off' as const),
      created: new Date().toISOString(),
      xmlMember,
      memoryMember,
      nvram: null,
      tpm: null,
    };
    const draft: Manifest = {
      formatVersion: 1,
      backupId: this.backupId,
      toolVersion: 'test',
      created: state.created,
      vm: { uuid: await guest.uuid(), name: guest.name },
      isTemplate: false,
      templateVersion: null,
      template: null,
      incremental: true,
      states: [...(last?.states ?? []), state],
      disks: entries,
      isos: [],
      luns: [],
      snapshots,
      excludedDisks: [],
      members: [],
      options: {},
      warnings: [],
      fallbackReason: null,
    };
    this.#states.push({ pieces, draft });
  }

  /** Writes the file. */
  async write(path: string, options: { compress?: boolean; hash?: boolean } = {}): Promise<void> {
    const { compress = false, hash = false } = options;
    mkdirSync(join(path, '..'), { recursive: true });
    const writer = await ArchiveWriter.create({
      path,
      backupId: this.backupId,
      compression: compress ? {} : null,
      hash,
      signal: AbortSignal.timeout(280_000),
    });
    const listed: MemberRecord[] = [];
    for (const [index, { pieces, draft }] of this.#states.entries()) {
      for (const { name, kind, source } of pieces) {
        listed.push(
          'text' in source
            ? await writer.addBytes(name, kind, Buffer.from(source.text))
            : await writer.addFile(name, kind, source.path, { formerPath: source.formerPath }),
        );
      }
      const last = index === this.#states.length - 1;
      if (last) await writer.finish({ stateNumber: index + 1, manifest: members => ({ ...draft, members }) });
      else
        listed.push(
          await writer.addBytes(
            memberNames.manifest(index + 1),
            'manifest',
            encodeManifest({ ...draft, members: [...listed] }),
          ),
        );
    }
  }

  async #disk(
    pieces: Piece[],
    { number, state }: { number: number; state: string },
    target: string,
    path: string,
  ): Promise<Manifest['disks'][number]> {
    const { stdout } = await run(['qemu-img', 'info', '-U', '--backing-chain', '--output=json', path]);
    const chain = (JSON.parse(stdout) as { filename: string; 'virtual-size': number }[]).toReversed();
    const before = this.#states.at(-1)?.draft.disks.find(disk => disk.target === target);
    // what the last state made as an overlay is the first file that is new
    const known = before ? chain.findIndex(({ filename }) => filename === this.#overlays.get(target)) : 0;
    const fresh = chain.slice(known);
    const id = before?.id ?? diskId(chain[0]!.filename);
    const layers = fresh.map(({ filename }, index) => {
      const first = !before && index === 0;
      const made = first ? memberNames.disk(id) : memberNames.layer(id, `${number}.${index}`);
      const member = this.#file(pieces, made, first ? 'disk' : 'layer', filename);
      const frozenBy = index === fresh.length - 1 ? state : null;
      return { member, stateNumber: number, frozenBy, formerPath: filename };
    });
    this.#overlays.set(target, (await this.#guest.disks())[target]!);
    return {
      id,
      target,
      bus: 'virtio',
      virtualSizeBytes: chain.at(-1)!['virtual-size'],
      format: 'qcow2',
      formerFormat: 'qcow2',
      formerPath: path,
      poolId: null,
      poolName: null,
      layers: [...(before?.layers ?? []), ...layers],
      base: null,
    };
  }

  /** Per target the overlay that the last state made. */
  readonly #overlays = new Map<string, string>();

  async #snapshots(
    pieces: Piece[],
    number: number,
    ownMemory: string | null,
  ): Promise<Manifest['snapshots']> {
    const guest = this.#guest;
    const current = (await guest.node.virsh('snapshot-current', guest.name, '--name')).trim();
    const records: Manifest['snapshots'] = [];
    for (const name of await guest.snapshots()) {
      const xml = await guest.node.virsh('snapshot-dumpxml', guest.name, name, '--security-info');
      const memory = /<memory snapshot='external' file='([^']+)'/.exec(xml)?.[1] ?? null;
      const known = this.#states
        .flatMap(({ draft }) => draft.snapshots)
        .find(record => record.name === name && record.memoryMember !== null);
      const own = name === this.stateName(number) ? ownMemory : null;
      records.push({
        name,
        parent: /<parent>\s*<name>([^<]+)</.exec(xml)?.[1] ?? null,
        current: name === current,
        created: new Date(Number(/<creationTime>(\d+)/.exec(xml)![1]) * 1000).toISOString(),
        description: /<description>([^<]*)</.exec(xml)?.[1] ?? null,
        xmlMember: text(pieces, memberNames.stateXml(number, name), 'state_xml', xml),
        memoryMember: own ?? known?.memoryMember ?? null,
        formerMemoryPath: memory,
        nvram: null,
        tpm: null,
      });
    }
    return records;
  }

  /** Keeps a copy: the file may be merged away before the archive is written. */
  #file(pieces: Piece[], name: string, kind: MemberKind, path: string): string {
    const copy = join(this.#scratch, name);
    copyFileSync(path, copy);
    if (statSync(copy).size === 0) throw new Error(`${path} is empty`);
    pieces.push({ name, kind, source: { path: copy, formerPath: path } });
    return name;
  }
}

function text(pieces: Piece[], name: string, kind: MemberKind, content: string): string {
  pieces.push({ name, kind, source: { text: content } });
  return name;
}
