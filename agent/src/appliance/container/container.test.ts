import { open, writeFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import { afterAll, expect, test } from '@jest/globals';
import { scratch, signal, tar, tarMember, tool } from '../test-kit.ts';
import type { Container } from './container.ts';
import { PackedTar, PlainTar } from './tar.ts';
import { openZip } from './zip.ts';

const dir = scratch();
afterAll(dir.remove);

/** They differ where a comparison comes last. */
const nameOf = (at: number) => `${'n'.repeat(90)}${String(at).padStart(4, '0')}`;
const COUNT = 4_000;
const BYTES = tar(...Array.from({ length: COUNT }, (_, at) => tarMember(nameOf(at), '')));

async function fileOf(name: string, bytes: Buffer) {
  await writeFile(dir.at(name), bytes);
  return open(dir.at(name));
}

test.each<[string, () => Promise<Container>]>([
  ['tar', async () => PlainTar.open(await fileOf('a.tar', BYTES), signal)],
  [
    'packed tar',
    async () => {
      const file = await fileOf('a.tar.gz', gzipSync(BYTES));
      async function* unpack() {
        yield BYTES;
      }
      return PackedTar.open(unpack, signal, () => file.close());
    },
  ],
  [
    'zip',
    async () => {
      await writeFile(dir.at('z.tar'), BYTES);
      tool('bsdtar', ['--format=zip', '-cf', dir.at('z.zip'), `@${dir.at('z.tar')}`]);
      return openZip(await open(dir.at('z.zip')), signal);
    },
  ],
])('a %s of thousands of members is asked for names millions of times', async (_, opened) => {
  const container = await opened();
  try {
    expect(container.members).toHaveLength(COUNT);
    expect(await container.find(nameOf(COUNT - 1))).toMatchObject({ name: nameOf(COUNT - 1), sizeBytes: 0 });
    const missing = nameOf(COUNT);
    let last: unknown;
    for (let time = 0; time < 3_000_000; time++) last = container.find(missing);
    expect(await last).toBeUndefined();
  } finally {
    await container.close();
  }
});
