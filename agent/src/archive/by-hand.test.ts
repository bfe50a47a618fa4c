import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import { openArchive, undoAppend } from './index.ts';
import { appendState, BACKUP_ID, noise, scratch, signal, tool, writeArchive } from './test-kit.ts';

/**
 * Archives with two states, written by format version 1 and kept for ever, and the page that says how to restore them
 * with tar, zstd and qemu-img alone. The disk has 1 MiB, 64 KiB of 0x07 at 128 KiB; at state 2 also 64 KiB of 0x09 at
 * 160 KiB.
 */
const golden = (name: string) => join(import.meta.dirname, 'golden', name);
const page = readFileSync(join(import.meta.dirname, '../../../docs/archive-format.md'), 'utf8');
const DISK = '7a5b3c1e-0d2f-4e61-8a43-5c6d7e8f9a01';
const LAYER = `${DISK}_backup_20260102T030405Z.snapshot`;

const dir = scratch();
afterAll(() => dir.remove());

/** The content of a state's disk, read by QEMU. */
async function expectDisk(path: string, state: 1 | 2): Promise<void> {
  const reads = ['read -P 7 128K 32K', 'read -P 0 0 128K', 'read -P 0 224K 800K'];
  if (state === 1) reads.push('read -P 7 160K 32K', 'read -P 0 192K 32K');
  else reads.push('read -P 9 160K 64K');
  const output = await tool('qemu-io', ['-r', ...reads.flatMap(read => ['-c', read]), path]);
  expect(output).not.toContain('failed');
  expect(output.match(/^read \d+\/\d+ bytes/gm)).toHaveLength(reads.length);
}

describe.each(['v1-incremental.tar', 'v1-incremental.tar.zst'])('%s', name => {
  test('reads as it did when it was written', async () => {
    const archive = await openArchive(golden(name), signal);
    try {
      expect(archive.manifest).toMatchObject({ incremental: true, vm: { name: 'web' } });
      expect(archive.manifest?.states.map(state => [state.number, state.name])).toEqual([
        [1, 'backup_20260102T030405Z'],
        [2, 'backup_20260103T030405Z'],
      ]);
      expect(archive.manifest?.disks[0]?.layers.map(layer => layer.member)).toEqual([`${DISK}.qcow2`, LAYER]);
      expect(archive.members.map(member => [member.name, member.kind])).toEqual([
        [`${DISK}.qcow2`, 'disk'],
        ['0001_web.xml', 'domain_xml'],
        ['0001_manifest.json', 'manifest'],
        [LAYER, 'layer'],
        ['0002_web.xml', 'domain_xml'],
        ['0002_manifest.json', 'manifest'],
      ]);
      expect(await archive.verify({ signal })).toEqual({
        problems: [],
        provenMembers: 6,
        unprovenMembers: 0,
        restorableStates: [1, 2],
        hashed: true,
      });
    } finally {
      await archive.close();
    }
  });

  test('both states are restored with the commands of the page', async () => {
    const commands = /^```sh by-hand\n([\s\S]*?)^```$/m.exec(page)?.[1];
    expect(commands).toBeDefined();
    const home = dir.at(`by-hand-${name}`);
    mkdirSync(home);
    const zstd = name.endsWith('.zst');
    const file = zstd ? 'web.tar.zst' : 'web.tar';
    for (const ending of ['', '.sha256'])
      copyFileSync(golden(`${name}${ending}`), `${home}/${file}${ending}`);
    const script = zstd
      ? commands!.replaceAll('web.tar', 'web.tar.zst').replace('tar -C web -xf', 'tar -C web --zstd -xf')
      : commands!;
    const printed = await tool('bash', ['-euc', script], home);
    expect([...printed.matchAll(/"member": "([^"]+)"/g)].map(found => found[1])).toEqual([
      `${DISK}.qcow2`,
      `${DISK}.qcow2`,
      LAYER,
    ]);
    await expectDisk(`${home}/state-1.qcow2`, 1);
    await expectDisk(`${home}/state-2.qcow2`, 2);
  });
});

test.each(['tar', 'tar.zst'])(
  'an extension of a %s is undone with the commands of the page',
  async format => {
    const commands = /^```sh\n(tail=[\s\S]*?)^```$/m.exec(page)?.[1];
    expect(commands).toBeDefined();
    const home = dir.at(`undo-${format}`);
    mkdirSync(home);
    const path = `${home}/web.${format}`;
    await writeArchive(path, [{ name: 'd.qcow2', from: noise(300_000) }], {
      zstd: format !== 'tar',
      hash: true,
    });
    const before = [readFileSync(path), readFileSync(`${path}.sha256`)];
    const tail = `.web.${format}.${BACKUP_ID}.tail`;
    await appendState(path, [{ name: 'd_s.snapshot', from: noise(100_000, 2) }], {
      tailPath: `${home}/${tail}`,
    });
    copyFileSync(`${home}/${tail}`, `${home}/kept`);
    const after = readFileSync(path);
    const script = commands!.replace('.web.tar.….tail', tail).replaceAll('web.tar ', `web.${format} `);
    await tool(
      'bash',
      [
        '-euc',
        script.replace('web.tar\n', `web.${format}\n`).replace('> web.tar.sha256', `> web.${format}.sha256`),
      ],
      home,
    );
    expect(readFileSync(path).equals(before[0]!)).toBe(true);
    expect(readFileSync(`${path}.sha256`).equals(before[1]!)).toBe(true);
    writeFileSync(path, after);
    copyFileSync(`${home}/kept`, `${home}/${tail}`);
    await undoAppend(path, `${home}/${tail}`);
    expect(readFileSync(path).equals(before[0]!)).toBe(true);
    rmSync(home, { recursive: true });
  },
);
