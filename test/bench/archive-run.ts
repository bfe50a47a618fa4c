/**
 * One archive operation in a process of its own, as the agent would do it:
 *   node archive-run.ts write <source> <target> plain|zstd [hash]
 *   node archive-run.ts extract <archive> <target>
 *   node archive-run.ts list <archive>
 *   node archive-run.ts append <archive> <source>       adds a state, then takes it away again
 *   node archive-run.ts grow <archive> <states>         appends small states until it has so many
 *   node archive-run.ts convert <archive> <target> plain|zstd
 * Prints elapsed time and peak memory as JSON. Loading the code is not counted: the agent has it loaded.
 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  ArchiveAppender,
  ArchiveConverter,
  ArchiveWriter,
  openArchive,
  undoAppend,
} from '../../agent/src/archive/index.ts';
import { BACKUP_ID, manifestOf } from '../../agent/src/archive/test-kit.ts';
import { peakRssBytes } from './lib.ts';

const { signal } = new AbortController();

async function write(source: string, path: string, format: string, hash: boolean): Promise<number> {
  const start = performance.now();
  const compression = format === 'zstd' ? { level: 3 } : null;
  const writer = await ArchiveWriter.create({ path, backupId: BACKUP_ID, compression, hash, signal });
  try {
    await writer.addFile('disk.qcow2', 'disk', source);
    await writer.addBytes('0001_bench.xml', 'domain_xml', Buffer.from('<domain/>'));
    const layers = [{ member: 'disk.qcow2', stateNumber: 1, frozenBy: null, formerPath: '/pool/disk.qcow2' }];
    const disk = {
      id: 'vda', target: 'vda', bus: 'virtio', virtualSizeBytes: 2 ** 34, format: 'qcow2' as const, formerFormat: 'qcow2',
      formerPath: '/pool/disk.qcow2', poolId: null, poolName: null, layers, base: null,
    }; // biome-ignore format: one record
    await writer.finish({ stateNumber: 1, manifest: members => manifestOf(members, { disks: [disk] }) });
  } finally {
    await writer.abort();
  }
  return performance.now() - start;
}

async function append(path: string, source: string): Promise<number> {
  const tailPath = `${path}.tail`;
  const start = performance.now();
  try {
    await extend(path, tailPath, (appender, name) => appender.addFile(name, 'layer', source));
    return performance.now() - start;
  } finally {
    await undoAppend(path, tailPath);
  }
}

/** Appends one state as an increment does: a layer of the one disk, the XML of the VM, the manifest. */
async function extend(
  path: string,
  tailPath: string,
  addLayer: (appender: ArchiveAppender, name: string) => Promise<unknown>,
): Promise<void> {
  const appender = await ArchiveAppender.open({ path, signal });
  try {
    const { manifest } = appender;
    const number = manifest.states.length + 1;
    const layer = `disk_s${number}.snapshot`;
    const xmlMember = `${String(number).padStart(4, '0')}_bench.xml`;
    await appender.begin(tailPath);
    await addLayer(appender, layer);
    await appender.addBytes(xmlMember, 'domain_xml', Buffer.from('<domain/>'));
    const states = [...manifest.states, { ...manifest.states[0]!, number, name: `s${number}`, xmlMember }];
    const disks = withLayer(manifest.disks, { member: layer, stateNumber: number, frozenBy: `s${number}` });
    await appender.finish({
      stateNumber: number,
      manifest: members => ({ ...manifest, incremental: true, disks, states, members }),
    });
  } finally {
    await appender.abort();
  }
}

type Disks = ArchiveAppender['manifest']['disks'];
type Layer = Disks[number]['layers'][number];

const withLayer = ([disk]: Disks, added: Partial<Layer>): Disks =>
  disk ? [{ ...disk, layers: [...disk.layers, { ...disk.layers[0]!, ...added }] }] : [];

async function grow(path: string, count: number): Promise<number> {
  const start = performance.now();
  const tailPath = `${path}.tail`;
  const bytes = randomBytes(4096);
  for (let number = 2; number <= count; number++) {
    await extend(path, tailPath, (appender, name) => appender.addBytes(name, 'layer', bytes));
    rmSync(tailPath);
  }
  return performance.now() - start;
}

async function convert(from: string, path: string, format: string): Promise<number> {
  const start = performance.now();
  const compression = format === 'zstd' ? { level: 3 } : null;
  const converter = await ArchiveConverter.open({ from, path, compression, signal });
  try {
    await converter.write();
    await converter.publish();
    return performance.now() - start;
  } finally {
    await converter.abort();
  }
}

async function extract(path: string, target: string): Promise<number> {
  const start = performance.now();
  const archive = await openArchive(path, signal);
  try {
    await archive.extractMember('disk.qcow2', target, { signal });
  } finally {
    await archive.close();
  }
  return performance.now() - start;
}

/** A small archive that is read and written first, so that code and threads are as warm as in an agent that has run for a while. */
const GOLDEN = fileURLToPath(new URL('../../agent/src/archive/golden/v1.tar.zst', import.meta.url));

async function list(path: string): Promise<number> {
  const start = performance.now();
  const archive = await openArchive(path, signal);
  const xml = archive.members.find(member => member.kind === 'domain_xml')!;
  await archive.readMember(xml.name, signal);
  const elapsedMs = performance.now() - start;
  await archive.close();
  return elapsedMs;
}

async function warmUp(): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'vk-warm-'));
  try {
    await extract(GOLDEN, join(directory, 'extracted'));
    await write(GOLDEN, join(directory, 'written.tar.zst'), 'zstd', false);
    await list(GOLDEN);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

const [operation, first = '', second = '', format = 'plain', hash] = process.argv.slice(2);
const operations: Record<string, () => Promise<number>> = {
  write: () => write(first, second, format, hash === 'hash'),
  extract: () => extract(first, second),
  list: () => list(first),
  append: () => append(first, second),
  grow: () => grow(first, Number(second)),
  convert: () => convert(first, second, format),
};
await warmUp();
const elapsedMs = await operations[operation!]!();
console.log(JSON.stringify({ elapsedMs, peakRssBytes: peakRssBytes() }));
