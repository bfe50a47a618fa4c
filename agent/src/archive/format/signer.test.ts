import { createHash, X509Certificate } from 'node:crypto';
import { copyFileSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { serialOf } from '@virtkeep/shared/serials';
import { type Archive, openArchive } from '../read/reader.ts';
import {
  appendState,
  CREATED,
  growingManifest,
  noise,
  scratch,
  signal,
  tool,
  type WriteOptions,
  writeArchive,
} from '../test-kit.ts';
import { ArchiveConverter } from '../write/convert.ts';
import { ArchiveSigner, type SigningIdentity } from './signer.ts';
import { type TestAuthority, testAuthority } from './signing-kit.ts';
import type { Sealed } from './types.ts';

const OWN = '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f0011';
const OTHER = '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f0012';
const HOSTILE = 'file:///etc/shadow';

const dir = scratch();
afterAll(dir.remove);
let fleet: TestAuthority;
let own: SigningIdentity;
let other: SigningIdentity;
let stranger: SigningIdentity;

beforeAll(async () => {
  fleet = await testAuthority();
  own = await fleet.node(OWN);
  other = await fleet.node(OTHER);
  stranger = await (await testAuthority()).node(OWN);
});

const signerOf = (identity: SigningIdentity, revoked: string[] = []) =>
  new ArchiveSigner({ identity: () => identity, isRevoked: serial => revoked.includes(serial) });
const serialIn = ({ certificatePem }: SigningIdentity) =>
  serialOf(new X509Certificate(certificatePem).serialNumber);
const DISK = noise(300_000);
let count = 0;

/** An archive of one disk, signed by a node unless `by` is null. */
async function made(by: SigningIdentity | null = own, options: WriteOptions = {}): Promise<string> {
  const path = dir.at(`${++count}.tar${options.zstd ? '.zst' : ''}`);
  const sign = by === null ? {} : { sign: signerOf(by).sign };
  await writeArchive(path, [{ name: 'd.qcow2', from: DISK }], { ...sign, ...options });
  return path;
}

const opened = async <T>(path: string, look: (archive: Archive) => T | Promise<T>): Promise<T> => {
  const archive = await openArchive(path, signal);
  try {
    return await look(archive);
  } finally {
    await archive.close();
  }
};
/** The other form of an archive, which a node signs unless `by` is null. */
async function converted(from: string, by: SigningIdentity | null = null): Promise<string> {
  const isCompressed = from.endsWith('.zst');
  const path = dir.at(`${++count}.tar${isCompressed ? '' : '.zst'}`);
  const signer = by && signerOf(by);
  const sign = (archive: Sealed) => (signer?.judge(archive).trust === 'foreign' ? signer.sign : undefined);
  const compression = isCompressed ? null : {};
  const converter = await ArchiveConverter.open({ from, path, compression, sign, signal });
  try {
    await converter.write();
    await converter.publish();
  } finally {
    await converter.abort();
  }
  return path;
}
const judged = (path: string, signer = signerOf(own)) => opened(path, archive => signer.judge(archive));
const increment = (path: string, by: SigningIdentity | null = own, content = 'second') => {
  const signer = by && signerOf(by);
  return appendState(path, [{ name: `d_${content}.snapshot`, from: Buffer.from(content) }], {
    ...(signer && {
      signer: sealed => {
        const { trust } = signer.judge(sealed);
        return trust === 'foreign' ? undefined : { sign: signer.sign, sameSigner: trust === 'own' };
      },
    }),
  });
};
/** Changes bytes in place: the archive's structure stays what it was. */
const forge = (path: string, from: string | Buffer, to: string) => {
  const bytes = readFileSync(path);
  const at = bytes.lastIndexOf(from);
  expect(at).toBeGreaterThan(0);
  bytes.write(to, at, 'latin1');
  writeFileSync(path, bytes);
};

describe('an archive is signed', () => {
  test.each([{}, { zstd: true }, { hash: true }, { zstd: true, hash: true }])('%j', async options => {
    const path = await made(own, options);
    const coversContent = options.hash === true;
    expect(await judged(path)).toEqual({
      trust: 'own',
      signer: OWN,
      reason: '',
      byOneNode: true,
      coversContent,
    });
    const told = { trust: 'fleet', signer: OWN, byOneNode: true };
    expect(await judged(path, signerOf(other))).toMatchObject(told);
  });

  test('by a certificate that has ended since, and not by one that was taken back', async () => {
    const path = await made(await fleet.node(OTHER, { days: -1 }));
    expect(await judged(path)).toMatchObject({ trust: 'fleet', signer: OTHER });
    const taken = await made(other);
    expect(await judged(taken, signerOf(own, [serialIn(other)]))).toMatchObject({
      trust: 'foreign',
      signer: OTHER,
      reason: expect.stringContaining('revoked'),
    });
  });

  test('of a former certificate of the same node, after its renewal', async () => {
    const path = await made(own);
    expect(await judged(path, signerOf(await fleet.node(OWN)))).toMatchObject({ trust: 'own' });
  });

  test('in either form, whichever it was made in', async () => {
    for (const zstd of [false, true]) {
      const path = await converted(await made(own, { zstd }));
      expect(await judged(path)).toMatchObject({ trust: 'own' });
    }
  });

  test('through all of its states, also where manifests continue earlier ones', async () => {
    const path = await made();
    for (let state = 2; state <= 35; state++) await increment(path, own, `s${state}`);
    await opened(path, async archive => {
      expect(signerOf(own).judge(archive)).toMatchObject({ trust: 'own' });
      expect((await archive.manifestOfState(33)).states).toHaveLength(33);
    });
    expect(await judged(path, signerOf(other))).toMatchObject({ trust: 'fleet', signer: OWN });
  });

  test('and is no node’s own any more once another one signed a manifest of it', async () => {
    const path = await made(other);
    for (let state = 2; state <= 34; state++) {
      await increment(path, own, `s${state}`);
      expect(await judged(path)).toMatchObject({ trust: 'fleet', signer: OWN, byOneNode: false });
    }
    expect(await judged(path, signerOf(other))).toMatchObject({ trust: 'fleet', signer: OWN });
    await increment(path, other, 'back');
    expect(await judged(path, signerOf(other))).toMatchObject({ trust: 'fleet', signer: OTHER });
  });
});

test.each([false, true])(
  'a signature is checked with the commands of the page, changed: %p',
  async changed => {
    const page = readFileSync(join(import.meta.dirname, '../../../../docs/archive-format.md'), 'utf8');
    const commands = /^```sh\n(m=[\s\S]*?)^```$/m.exec(page)![1]!;
    const path = await made();
    if (changed) forge(path, '"name": "vm"', '"name": "mv"');
    const home = dir.at(`by-hand-${changed}`);
    mkdirSync(home);
    await tool('tar', ['-C', home, '-xf', path]);
    writeFileSync(join(home, 'ca.pem'), own.caPem);
    const checked = tool('bash', ['-euc', commands], home);
    if (changed) await expect(checked).rejects.toMatchObject({ stdout: expect.stringMatching(/failure/i) });
    else expect(await checked).toContain('Verified OK');
  },
);

test.each([false, true])(
  'an archive of before is signed when it is converted, into a compressed one: %p',
  async zstd => {
    const from = await made(null, { zstd: !zstd });
    await increment(from, null);
    const path = await converted(from, own);
    await opened(path, async archive => {
      expect(signerOf(other).judge(archive)).toMatchObject({
        trust: 'fleet',
        signer: OWN,
        coversContent: false,
      });
      expect((await archive.manifestOfState(1)).states).toHaveLength(1);
      expect((await archive.verify({ signal })).problems).toEqual([]);
    });
    await increment(path, other, 'third');
    expect(await judged(path)).toMatchObject({ trust: 'fleet', signer: OTHER });
  },
);

describe('who has an archive signed that he did not make does not make it the node’s own', () => {
  const fleetOfOwn = { trust: 'fleet', signer: OWN, byOneNode: false, reason: '' };

  test.each([1, 2, 34])('of %p states, whatever it said of itself, and whoever extends it', async states => {
    const from = await made(null);
    const hostile: typeof growingManifest = (before, members) => ({
      ...growingManifest(before, members),
      sameSigner: true,
    });
    for (let state = 2; state <= states; state++) await appendState(from, [], { manifest: hostile });
    const path = await converted(from, own);
    expect(await judged(path)).toMatchObject(fleetOfOwn);
    for (const content of ['a', 'b']) {
      await increment(path, own, content);
      expect(await judged(path)).toMatchObject(fleetOfOwn);
    }
    expect(await judged(await converted(path, own))).toMatchObject(fleetOfOwn);
  });

  test('and one that is vouched for stays as it is', async () => {
    const path = await made(own);
    await increment(path);
    const again = await converted(path, own);
    expect(await judged(again)).toMatchObject({ trust: 'own' });
    expect(readFileSync(await converted(again))).toEqual(readFileSync(path));
    expect(await judged(await converted(await made(other), own))).toMatchObject({
      trust: 'fleet',
      signer: OTHER,
    });
  });
});

describe('nobody vouches for an archive', () => {
  const foreign = (reason: string) => ({ trust: 'foreign', reason: expect.stringContaining(reason) });

  test('that is not signed, or signed under another authority', async () => {
    expect(await judged(await made(null))).toMatchObject({ ...foreign('not signed'), signer: '' });
    expect(await judged(await made(stranger))).toMatchObject(foreign('another controller'));
  });

  test('signed by one of ours who is no node', async () => {
    for (const urns of [
      ['urn:virtkeep:role:operator'],
      [],
      [`urn:virtkeep:node:${OWN}`, 'urn:virtkeep:role:reader'],
    ])
      expect(await judged(await made(await fleet.node(OWN, { urns })))).toMatchObject(foreign('no node'));
  });

  test('whose manifest was changed', async () => {
    const path = await made();
    forge(path, '"name": "vm"', '"name": "mv"');
    expect(await judged(path)).toMatchObject(foreign('changed'));
  });

  test('whose manifest says more behind its signature', async () => {
    const path = await made();
    const text = readFileSync(path);
    const at = text.lastIndexOf('\n}\n');
    const end = text.indexOf(0, at);
    const more = ',"warnings":[]}\n';
    // the padding of the block has room for it
    text.write(more, at, 'latin1');
    const size = Math.ceil(end / 512) * 512 - end;
    expect(size).toBeGreaterThan(more.length);
    const header = text.lastIndexOf('0001_manifest.json', text.lastIndexOf('ustar'));
    const grown = Number.parseInt(text.toString('latin1', header + 124, header + 135), 8) + more.length - 3;
    text.write(grown.toString(8).padStart(11, '0'), header + 124, 'latin1');
    text.fill(' ', header + 148, header + 156);
    const sum = text.subarray(header, header + 512).reduce((total, byte) => total + byte, 0);
    text.write(`${sum.toString(8).padStart(6, '0')}\0 `, header + 148, 'latin1');
    writeFileSync(path, text);
    expect((await judged(path)).trust).toBe('foreign');
  });

  test('that bears the signature of another one', async () => {
    const [from, to] = [await made(), await made(own, { hash: true })];
    const signatureIn = (path: string) => /"value":"[^"]+"/.exec(readFileSync(path, 'latin1'))![0];
    const [taken, replaced] = [signatureIn(from), signatureIn(to)];
    // a value is a few bytes longer or shorter from case to case: one of the same length is looked for
    let value = taken;
    while (value.length !== replaced.length) value = signatureIn(await made());
    forge(to, replaced, value);
    expect(await judged(to)).toMatchObject(foreign('changed'));
  });

  test('that was unsigned when somebody who may sign extended it', async () => {
    const path = await made(null);
    await increment(path, own);
    expect(await judged(path)).toMatchObject(foreign('not signed'));
  });

  test('that an agent which does not sign extended', async () => {
    const path = await made(own);
    await increment(path, null);
    expect(await judged(path)).toMatchObject(foreign('not signed'));
  });
});

describe('what is used is what was signed', () => {
  const mismatch = { msgKey: 'hash_mismatch' };
  const digest = (text: string | Buffer) => createHash('sha256').update(text).digest('hex');

  test.each([false, true])('a definition that was changed is not read, hash: %p', async hash => {
    const path = await made(own, { hash });
    forge(path, '<name>vm</name>', '<name>mv</name>');
    await opened(path, async archive => {
      expect(signerOf(own).judge(archive)).toMatchObject({ trust: 'own' });
      await expect(archive.readMember('0001_vm.xml', signal)).rejects.toMatchObject(mismatch);
    });
  });

  test('nor when its hashes were changed with it: then nobody vouches for it', async () => {
    const path = await made(own, { hash: true });
    const xml = '<domain type="kvm"><name>vm</name></domain>\n';
    const forged = xml.replace('vm</name>', 'mv</name>');
    forge(path, xml, forged);
    forge(path, digest(xml), digest(forged));
    await opened(path, async archive => {
      expect((await archive.readMember('0001_vm.xml', signal)).toString()).toBe(forged);
      expect(signerOf(own).judge(archive)).toMatchObject({ trust: 'foreign' });
    });
  });

  test('a disk that was changed is not extracted where disks are signed, too', async () => {
    const path = await made(own, { hash: true });
    forge(path, DISK.subarray(200_000, 200_100), HOSTILE);
    await opened(path, async archive => {
      const to = archive.extractMember('d.qcow2', dir.at('out'), { signal, checkHash: true });
      await expect(to).rejects.toMatchObject(mismatch);
    });
  });

  test('an earlier manifest in place of which another one was put is not read', async () => {
    const path = await made();
    await increment(path);
    const former = readFileSync(path).indexOf('"name": "vm"');
    const bytes = readFileSync(path);
    bytes.write('"name": "mv"', former, 'latin1');
    writeFileSync(path, bytes);
    await opened(path, async archive => {
      expect(signerOf(own).judge(archive)).toMatchObject({ trust: 'own' });
      await expect(archive.manifestOfState(1)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
    });
  });

  describe('an archive that was signed as a whole, with manifests of before that list no digests', () => {
    const saved = {
      ...{ name: 'user', parent: null, current: true, created: CREATED, description: null },
      ...{ xmlMember: '0001_vm.xml', memoryMember: null, formerMemoryPath: null, nvram: null, tpm: null },
    };
    const STATES = 34;
    let path: string;

    beforeAll(async () => {
      const from = await made(null);
      const manifest: typeof growingManifest = (before, members) => ({
        ...growingManifest(before, members),
        snapshots: [saved],
      });
      for (let state = 2; state <= STATES; state++) await appendState(from, [], { manifest });
      path = await converted(await converted(from, own));
    });

    /** What a writer to the pool can do: change a manifest in place, its size kept. */
    async function rewrite(state: number, change: (text: string) => string): Promise<void> {
      const name = `${String(state).padStart(4, '0')}_manifest.json`;
      const member = await opened(path, ({ members }) => members.find(one => one.name === name)!);
      const bytes = readFileSync(path);
      const { dataOffset, sizeBytes } = member;
      const text = change(bytes.toString('utf8', dataOffset, dataOffset + sizeBytes));
      expect(Buffer.byteLength(text)).toBeLessThanOrEqual(sizeBytes);
      bytes.write(text.padEnd(sizeBytes), dataOffset);
      writeFileSync(path, bytes);
    }
    const damage = (text: string) => text.replace('"0.1.0"', '"0.1.1"');
    const naming = (member: string) => (text: string) => {
      const manifest = JSON.parse(text);
      manifest.snapshots[0].xmlMember = member;
      return JSON.stringify(manifest);
    };

    test('is read and extended through nothing that the newest manifest does not have so', async () => {
      await rewrite(24, damage);
      await rewrite(25, naming('d.qcow2'));
      await opened(path, async archive => {
        expect(signerOf(own).judge(archive).trust).not.toBe('foreign');
        expect((await archive.manifestOfState(33)).snapshots).toEqual([saved]);
        for (const state of [24, 25])
          await expect(archive.manifestOfState(state)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
        const { problems, restorableStates } = await archive.verify({ signal });
        expect(problems.map(({ member }) => member)).toEqual(['0024_manifest.json', '0025_manifest.json']);
        expect(restorableStates).toContain(33);
      });
      const sizes: number[] = [];
      for (let state = STATES + 1; state <= 49; state++) {
        await increment(path, own, `s${state}`);
        await opened(path, archive => {
          expect(signerOf(own).judge(archive).trust).not.toBe('foreign');
          expect(archive.manifest!.snapshots).toEqual([saved]);
          sizes.push(archive.members.at(-1)!.sizeBytes);
        });
      }
      // what the signed one repeated once is continued then
      expect(sizes.at(-1)).toBeLessThan(sizes[0]! / 2);
    });

    test('is not read at all when nothing of that is left', async () => {
      for (let state = 26; state < 32; state++) await rewrite(state, naming('d.qcow2'));
      await opened(path, archive =>
        expect(archive.manifestOfState(33)).rejects.toMatchObject({ msgKey: 'archive_damaged' }),
      );
    });
  });

  test('no disk stands for what defines the VM, whatever a manifest says: its bytes may have no digest', async () => {
    const path = await made(null);
    const manifest: typeof growingManifest = (before, members) => {
      const grown = growingManifest(before, members);
      const states = grown.states.map(state => ({ ...state, xmlMember: 'd.qcow2' }));
      return { ...grown, states };
    };
    await expect(appendState(path, [], { manifest })).rejects.toMatchObject({ msgKey: 'internal' });
    const text = readFileSync(path, 'latin1');
    const forged = text.replace('"kind": "domain_xml"', '"kind": "layer"     ');
    writeFileSync(path, forged, 'latin1');
    await expect(openArchive(path, signal)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
  });

  test('an archive that was put back to an earlier state is signed as that one', async () => {
    const path = await made();
    const before = dir.at('before.tar');
    copyFileSync(path, before);
    await increment(path);
    await opened(before, archive => {
      expect(signerOf(own).judge(archive)).toMatchObject({ trust: 'own' });
      expect(archive.manifest!.states).toHaveLength(1);
    });
    truncateSync(path, readFileSync(before).length - 1024);
    await expect(openArchive(path, signal)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
  });
});
