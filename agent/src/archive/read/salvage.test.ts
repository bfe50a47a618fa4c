import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { ArchiveMember } from '../format/types.ts';
import { openArchive, verifyArchive } from '../index.ts';
import { appendState, noise, scratch, signal, writeArchive } from '../test-kit.ts';

const dir = scratch();
afterAll(() => dir.remove());

/** A small generator of its own, so that a failing seed can be run again. */
function random(seed: number): (below: number) => number {
  let state = seed + 1;
  return below => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

describe.each(['tar', 'tar.zst'])('a %s of three states', format => {
  const path = dir.at(`three.${format}`);
  const changed = dir.at(`changed.${format}`);
  let whole: Buffer;
  let members: readonly ArchiveMember[];

  beforeAll(async () => {
    writeFileSync(dir.at('disk'), noise(150_000));
    const disk = { name: 'd.qcow2', from: dir.at('disk') };
    await writeArchive(path, [disk], { zstd: format === 'tar.zst', hash: true });
    for (const state of [2, 3])
      await appendState(path, [{ name: `d_${state}.snapshot`, from: noise(40_000, state) }]);
    whole = readFileSync(path);
    const archive = await openArchive(path, signal);
    members = archive.members;
    await archive.close();
  });

  const memberAt = (name: string) => members.find(member => member.name === name)!;

  async function verified(bytes: Buffer) {
    writeFileSync(changed, bytes);
    const { problems, restorableStates } = await verifyArchive(changed, { signal });
    return { problems: problems.map(({ member, problem }) => `${member}: ${problem}`), restorableStates };
  }

  test('is whole', async () => {
    expect(await verified(whole)).toEqual({ problems: [], restorableStates: [1, 2, 3] });
  });

  test('cut anywhere keeps the states whose manifest is before the cut', async () => {
    const next = random(5);
    for (let times = 0; times < 25; times++) {
      const cut = 1 + next(whole.length - 1);
      const { problems, restorableStates } = await verified(whole.subarray(0, cut)).catch(
        (error: { msgKey?: string }) => {
          // Less than the first header is no archive at all.
          if (error.msgKey !== 'archive_unsupported') throw error;
          return { problems: ['unsupported'], restorableStates: [] };
        },
      );
      expect({ cut, found: problems.length > 0 }).toEqual({ cut, found: true });
      expect([[], [1], [1, 2], [1, 2, 3]]).toContainEqual(restorableStates);
      if (restorableStates.length > 0) expect(problems).toContain('null: torn_tail');
      if (restorableStates.length === 0 || problems[0] === 'unsupported') continue;
      await expectReadable(restorableStates.at(-1)!);
    }
  });

  /** The archive opens for whoever wants to salvage, as the newest readable state left it, and only for them. */
  async function expectReadable(state: number): Promise<void> {
    await expect(openArchive(changed, signal)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
    const archive = await openArchive(changed, signal, { salvage: true });
    try {
      expect(archive.damage).not.toBeNull();
      expect(archive.manifest?.states.at(-1)?.number).toBe(state);
      const out = dir.at('salvaged');
      await archive.extractMember('d.qcow2', out, { signal, checkHash: true });
      expect(readFileSync(out).equals(noise(150_000))).toBe(true);
      rmSync(out);
    } finally {
      await archive.close();
    }
  }

  test('whose newest manifest is damaged names it and keeps the others', async () => {
    const manifest = memberAt('0003_manifest.json');
    const at = format === 'tar' ? manifest.dataOffset : whole.length - 1200;
    const bytes = Buffer.from(whole);
    bytes.fill(0x7d, at, at + 8);
    const { problems, restorableStates } = await verified(bytes);
    expect(restorableStates).toEqual(problems[0] === 'null: torn_tail' ? restorableStates : [1, 2]);
    if (format === 'tar') expect(problems).toEqual(['0003_manifest.json: damaged']);
    else expect(problems.length).toBeGreaterThan(0);
  });

  test('a flipped byte anywhere is found, or harms nothing', async () => {
    const next = random(9);
    for (let times = 0; times < 25; times++) {
      const at = next(whole.length);
      const bytes = Buffer.from(whole);
      bytes[at]! ^= 1 << next(8);
      const { problems, restorableStates } = await verified(bytes);
      if (problems.length > 0) continue;
      // Padding and the text of comments mean nothing to anybody.
      expect({ at, restorableStates }).toEqual({ at, restorableStates: [1, 2, 3] });
      const archive = await openArchive(changed, signal);
      for (const { name, kind } of archive.members)
        if (kind !== 'manifest' && kind !== 'domain_xml') {
          const found = await archive.readMember(name, signal);
          const wanted = name === 'd.qcow2' ? noise(150_000) : noise(40_000, Number(name[2]));
          expect({ at, name, same: found.equals(wanted) }).toEqual({ at, name, same: true });
        }
      await archive.close();
    }
  });

  test('a flipped byte of a layer takes exactly the states that stand on it', async () => {
    if (format !== 'tar') return;
    // The layers are no part of these manifests: what they need is the XML, so damage that instead.
    const bytes = Buffer.from(whole);
    bytes[memberAt('0002_vm.xml').dataOffset]! ^= 1;
    expect(await verified(bytes)).toEqual({
      problems: ['0002_vm.xml: hash_mismatch'],
      restorableStates: [1, 3],
    });
  });
});

test('a compressed archive without its seek table is read by its frames', async () => {
  const path = dir.at('frames.tar.zst');
  writeFileSync(dir.at('big'), noise(9 * 1024 * 1024));
  await writeArchive(path, [{ name: 'd.qcow2', from: dir.at('big') }], { zstd: true, hash: true });
  const bytes = readFileSync(path);
  bytes.fill(0, bytes.length - 9);
  writeFileSync(path, bytes);
  const { problems, restorableStates } = await verifyArchive(path, { signal });
  expect(problems).toMatchObject([{ member: null, problem: 'torn_tail' }]);
  expect(restorableStates).toEqual([1]);
});

test('a tar that was packed again is not a torn one, and nobody vouches for it', async () => {
  const path = dir.at('ours.tar');
  await writeArchive(path, [{ name: 'd.qcow2', from: noise(5000) }]);
  const { tool } = await import('../test-kit.ts');
  await tool(
    'bash',
    ['-euc', `mkdir again && tar -C again -xf ours.tar && tar -C again -cf again.tar .`],
    dir.path,
  );
  const archive = await openArchive(dir.at('again.tar'), signal);
  expect([archive.manifest, archive.damage]).toEqual([null, null]);
  expect((await archive.verify({ signal })).restorableStates).toEqual([1]);
  await archive.close();
});
