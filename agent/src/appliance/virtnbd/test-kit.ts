/** Directories as virtnbdbackup writes them, for tests. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface DataFile {
  target?: string;
  checkpoint?: string;
  parent?: string;
  virtualSize?: number;
  /** Of the header; what is undefined is not in it. */
  meta?: Record<string, unknown>;
}

/** A file with the data of a disk: its header, a run of data and the end. */
export function dataFile({
  target = 'vda',
  checkpoint = 'virtnbdbackup.0',
  parent = '',
  ...more
}: DataFile = {}): Buffer {
  const meta = {
    virtualSize: more.virtualSize ?? 1_048_576,
    dataSize: 4,
    date: '2026-11-20T01:00:00.123456',
    diskName: target,
    diskFormat: 'qcow2',
    checkpointName: checkpoint,
    compressed: false,
    compressionMethod: 'lz4',
    parentCheckpoint: parent,
    incremental: parent !== '',
    streamVersion: 2,
    ...more.meta,
  };
  const json = JSON.stringify(meta, null, 4);
  const frame = (kind: string, start: number, length: number) =>
    `${kind} ${[start, length].map(value => value.toString(16).padStart(16, '0')).join(' ')}\r\n`;
  return Buffer.from(
    `${frame('meta', 0, json.length)}${json}\r\n${frame('data', 0, 4)}text\r\n${frame('stop', 0, 0)}`,
  );
}

export const definition = (name: string): string =>
  `<domain type="kvm"><name>${name}</name><uuid>11111111-2222-4333-8444-555555555555</uuid><memory>1024</memory><devices/></domain>`;

/** Puts files into a directory. */
export function put(directory: string, files: Record<string, Buffer | string>): void {
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(directory, name), bytes);
}
