/**
 * One archive operation in a process of its own, as the agent would do it:
 *   node archive-run.ts write <source> <target> plain|zstd [hash]
 *   node archive-run.ts extract <archive> <target>
 *   node archive-run.ts list <archive>
 *   node archive-run.ts append <archive> <source>       adds a state, then takes it away again
 *   node archive-run.ts convert <archive> <target> plain|zstd
 * Prints elapsed time and peak memory as JSON. Loading the code is not counted: the agent has it loaded.
 */
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
    await writer.finish({ stateNumber: 1, manifest: manifestOf });
  } finally {
    await writer.abort();
  }
  return performance.now() - start;
}

async function append(path: string, source: string): Promise<number> {
  const tailPath = `${path}.tail`;
  const start = performance.now();
  const appender = await ArchiveAppender.open({ path, signal });
  try {
    await appender.begin(tailPath);
    await appender.addFile('disk_s.snapshot', 'layer', source);
    const xmlMember = '0002_bench.xml';
    await appender.addBytes(xmlMember, 'domain_xml', Buffer.from('<domain/>'));
    const { manifest } = appender;
    const states = [...manifest.states, { ...manifest.states[0]!, number: 2, xmlMember }];
    await appender.finish({ stateNumber: 2, manifest: members => ({ ...manifest, states, members }) });
    return performance.now() - start;
  } finally {
    await appender.abort();
    await undoAppend(path, tailPath);
  }
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

/** A small archive that is opened first, so that the code is as warm as in an agent that has run for a while. */
const GOLDEN = fileURLToPath(new URL('../../agent/src/archive/golden/v1.tar.zst', import.meta.url));

async function list(path: string): Promise<number> {
  await listOnce(GOLDEN);
  return await listOnce(path);
}

async function listOnce(path: string): Promise<number> {
  const start = performance.now();
  const archive = await openArchive(path, signal);
  const xml = archive.members.find(member => member.kind === 'domain_xml')!;
  await archive.readMember(xml.name, signal);
  const elapsedMs = performance.now() - start;
  await archive.close();
  return elapsedMs;
}

const [operation, first = '', second = '', format = 'plain', hash] = process.argv.slice(2);
const operations: Record<string, () => Promise<number>> = {
  write: () => write(first, second, format, hash === 'hash'),
  extract: () => extract(first, second),
  list: () => list(first),
  append: () => append(first, second),
  convert: () => convert(first, second, format),
};
const elapsedMs = await operations[operation!]!();
console.log(JSON.stringify({ elapsedMs, peakRssBytes: peakRssBytes() }));
