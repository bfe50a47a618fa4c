import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { editMemoryFile, memoryFileXml } from './memory-file.ts';

const dir = mkdtempSync(join(tmpdir(), 'vk-memory-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

function memoryFile(name: string, xml: string, cookie: string, spare: number): string {
  const data = Buffer.concat([Buffer.from(`${xml}\0${cookie}\0`), Buffer.alloc(spare)]);
  const header = Buffer.alloc(92);
  header.write('LibvirtQemudSave', 0, 'latin1');
  header.writeUInt32LE(2, 16);
  header.writeUInt32LE(data.length, 20);
  header.writeUInt32LE(1, 24);
  header.writeUInt32LE(xml.length + 1, 32);
  const path = join(dir, name);
  writeFileSync(path, Buffer.concat([header, data, Buffer.from('QEVM stream')]));
  return path;
}

describe('memory file', () => {
  test('takes a longer XML and keeps its cookie, its length and the stream behind it', async () => {
    const path = memoryFile('a.memory', '<domain><name>a</name></domain>', '<cookie/>', 64);
    const before = readFileSync(path);
    await editMemoryFile(path, xml => xml.replace('>a<', '>a longer name<'));
    const after = readFileSync(path);
    expect(after.length).toBe(before.length);
    expect(await memoryFileXml(path)).toBe('<domain><name>a longer name</name></domain>');
    expect(after.subarray(92 + after.readUInt32LE(32)).toString('latin1')).toMatch(/^<cookie\/>\0/);
    expect(after.subarray(-11).toString('latin1')).toBe('QEVM stream');
  });

  test('refuses an XML that does not fit, and a file that is none', async () => {
    const path = memoryFile('b.memory', '<domain/>', '<cookie/>', 2);
    const before = readFileSync(path);
    await expect(editMemoryFile(path, () => '<domain>too long</domain>')).rejects.toMatchObject({
      msgKey: 'archive_damaged',
    });
    expect(readFileSync(path).equals(before)).toBe(true);
    const other = join(dir, 'c.memory');
    writeFileSync(other, 'nothing of the sort');
    await expect(memoryFileXml(other)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
  });
});
