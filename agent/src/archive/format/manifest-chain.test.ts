import { describe, expect, test } from '@jest/globals';
import { ManifestReader } from '../read/manifest-reader.ts';
import { CREATED, manifestOf } from '../test-kit.ts';
import { GROWTH_LIMITS } from './bounds.ts';
import { growthOf, whyGrown } from './growth.ts';
import { encodeManifest, type Manifest, type MemberRecord } from './manifest.ts';
import { baseNumbers, partOf, WHOLE_UNTIL, wholeOf } from './manifest-chain.ts';
import { memberNames } from './names.ts';

/** A small generator of its own, so that a failing seed can be run again. */
function random(seed: number): (below: number) => number {
  let state = seed + 1;
  return below => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

/** The manifests of an archive that grows, and the bytes they stand in: nothing else is in this file. */
class GrowingFile {
  readonly wholes: Manifest[] = [];
  readonly places: MemberRecord[] = [];
  readonly #pieces: Buffer[] = [];
  #bytes = 0;
  /** Reads what new manifests continue. */
  readonly #bases = new ManifestReader(this, '/a.tar');
  /** Manifests that were read since the last count. */
  reads = 0;

  get tarBytes(): number {
    return this.#bytes;
  }

  async read(offset: number): Promise<Buffer> {
    this.reads++;
    return this.#pieces[this.places.findIndex(({ dataOffset }) => dataOffset === offset)]!;
  }

  tailStarts = () => [];

  /** Appends the manifest of the next state as an archive would. */
  async append(whole: Manifest): Promise<void> {
    const number = this.wholes.length + 1;
    const [base] = baseNumbers(number) as [number | null];
    let part: Parameters<typeof encodeManifest>[0] = whole;
    if (base !== null) {
      const { name, dataOffset, sizeBytes } = this.places[base - 1]!;
      const { sha256 } = await this.#bases.base({ dataOffset, sizeBytes });
      part = partOf(whole, this.wholes[base - 1]!, { manifest: name, dataOffset, sizeBytes, sha256 });
    }
    const bytes = encodeManifest(part);
    this.places.push(record(memberNames.manifest(number), 'manifest', this.#bytes, bytes.length));
    this.wholes.push(whole);
    this.#pieces.push(bytes);
    this.#bytes += bytes.length;
  }

  damage(number: number): () => void {
    const bytes = this.#pieces[number - 1]!;
    this.#pieces[number - 1] = Buffer.from(bytes).fill(0, 10, 20);
    return () => {
      this.#pieces[number - 1] = bytes;
    };
  }

  sizeOf = (number: number): number => this.#pieces[number - 1]!.length;
  reader = () => new ManifestReader(this, '/a.tar');
  whole = async (number: number) => (await this.reader().read(this.places[number - 1]!)).manifest;
}

const record = (name: string, kind: MemberRecord['kind'], dataOffset = 0, sizeBytes = 1): MemberRecord => ({
  name,
  kind,
  sizeBytes,
  dataOffset,
  sha256: null,
  formerPath: kind === 'layer' ? `/var/lib/libvirt/images/${name}` : null,
});

const diskOf = (id: string) => ({
  id,
  target: id,
  bus: 'virtio',
  virtualSizeBytes: 1,
  format: 'qcow2' as const,
  formerFormat: 'qcow2',
  formerPath: `/${id}`,
  poolId: null,
  poolName: null,
  base: null,
});

/** The manifest after one more increment: disks come and go, saved states are merged or held. */
function next(file: GrowingFile, below: (limit: number) => number, hold = false): Manifest {
  const former = file.wholes.at(-1);
  const number = (former?.states.at(-1)?.number ?? 0) + 1;
  const xml = memberNames.domainXml(number, 'vm');
  const added = [record(xml, 'domain_xml')];
  const ids = (former?.disks ?? []).map(({ id }) => id).filter(() => below(60) > 0);
  if (ids.length === 0 || below(40) === 0) ids.push(`disk${number}`);
  const disks = ids.map(id => {
    const known = former?.disks.find(disk => disk.id === id)?.layers ?? [];
    const named = known.map((one, index) =>
      index === known.length - 1 ? { ...one, frozenBy: `s${number - 1}` } : one,
    );
    const member = `${id}_${number}.snapshot`;
    added.push(record(member, 'layer'));
    return {
      ...diskOf(id),
      layers: [...named, { member, stateNumber: number, frozenBy: null, formerPath: `/${member}` }],
    };
  });
  const state = {
    number,
    name: `s${number}`,
    consistency: 'quiesced' as const,
    created: CREATED,
    xmlMember: xml,
    memoryMember: null,
    nvram: null,
    tpm: null,
  };
  const saved = (former?.states ?? []).slice(hold ? -180 : -3).map(({ name }, index, all) => ({
    name: name!,
    parent: null,
    current: index === all.length - 1,
    created: CREATED,
    description: null,
    xmlMember: memberNames.domainXml(1, 'vm'),
    memoryMember: null,
    formerMemoryPath: null,
    nvram: null,
    tpm: null,
  }));
  const members = [...(former?.members ?? []), ...(former ? [file.places.at(-1)!] : []), ...added];
  const states = [...(former?.states ?? []), state];
  return manifestOf(members, { incremental: true, states, disks, snapshots: saved });
}

async function grown(states: number, seed: number, hold = false): Promise<GrowingFile> {
  const file = new GrowingFile();
  const below = random(seed);
  while (file.wholes.length < states) await file.append(next(file, below, hold));
  return file;
}

describe.each([
  [1, false],
  [2, true],
])('manifests that continue earlier ones (seed %p, states held: %p)', (seed, hold) => {
  test('say what whole ones say', async () => {
    const file = await grown(260, seed, hold);
    for (const number of [1, 31, 32, 33, 40, 63, 64, 65, 127, 128, 255, 256, 257, 260])
      expect(await file.whole(number)).toEqual(file.wholes[number - 1]);
  });

  test('are none of them indispensable: the others can be read, whichever is damaged', async () => {
    const file = await grown(90, seed, hold);
    for (let damaged = 32; damaged <= 80; damaged++) {
      const mend = file.damage(damaged);
      const reader = file.reader();
      await expect(reader.read(file.places[damaged - 1]!)).rejects.toMatchObject({
        msgKey: 'archive_damaged',
      });
      for (const number of [damaged - 1, damaged + 1, damaged + 5, damaged + 8, damaged + 9, 90]) {
        const { manifest } = await reader.read(file.places[number - 1]!);
        expect(manifest.members).toEqual(file.wholes[number - 1]!.members);
      }
      mend();
    }
  });

  test('survive the loss of seven in a row', async () => {
    const file = await grown(150, seed, hold);
    for (let first = 33; first + 7 < 150; first += 9) {
      const mends = [0, 1, 2, 3, 4, 5, 6].map(step => file.damage(first + step));
      expect((await file.whole(150)).members).toEqual(file.wholes[149]!.members);
      for (const mend of mends) mend();
    }
  });
});

test('few states have whole manifests, which earlier readers know', async () => {
  const file = await grown(WHOLE_UNTIL, 4);
  for (const { dataOffset } of file.places)
    expect(JSON.parse((await file.read(dataOffset)).toString())).toMatchObject({ formatVersion: 1 });
});

test('2,000 increments: what each writes does not grow, and opening reads some twenty manifests', async () => {
  const file = await grown(2000, 5);
  const mean = (from: number, to: number) => {
    let sum = 0;
    for (let number = from; number < to; number++) sum += file.sizeOf(number);
    return sum / (to - from);
  };
  const [early, late] = [mean(128, 256), mean(1872, 2000)];
  expect(late / early).toBeLessThan(2);
  expect(late).toBeLessThan(64 * 1024);
  file.reads = 0;
  expect((await file.whole(2000)).states).toHaveLength(2000);
  expect(file.reads).toBeLessThan(25);
  expect(whyGrown(file.wholes.at(-1)!)).toBeNull();
});

describe('what was read on the way to the newest', () => {
  async function opened() {
    const file = await grown(200, 7);
    const newest = file.places.at(-1)!;
    const reader = file.reader();
    const read = await reader.newest(await file.read(newest.dataOffset), newest.dataOffset);
    file.reads = 0;
    const [number] = baseNumbers(201) as [number];
    return { file, newest, reader, read, place: file.places[number - 1]! };
  }

  test('is not read again for the next one', async () => {
    const { file, reader, read, place } = await opened();
    const { manifest } = await reader.base(place);
    expect(file.reads).toBe(0);
    // the same entries, which need no comparing
    expect(manifest.members.every((member, index) => member === read.manifest.members[index])).toBe(true);
  });

  test('does not count when the newest lists something else', async () => {
    const { newest, reader, read, place } = await opened();
    for (const wrong of [{ sha256: 'f'.repeat(64) }, { digest: 'f'.repeat(64) }, { sizeBytes: 1 }]) {
      const members = read.manifest.members.map(member =>
        member.dataOffset === place.dataOffset ? { ...member, ...wrong } : member,
      );
      reader.goBy({ ...read, manifest: { ...read.manifest, members } }, newest);
      await expect(reader.base(place)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
    }
  });
});

test('a chain that leads forwards or in a circle is refused', async () => {
  const file = await grown(40, 6);
  const place = file.places[39]!;
  const part = JSON.parse((await file.read(place.dataOffset)).toString());
  part.continues = { ...part.continues, dataOffset: place.dataOffset };
  part.members = [];
  await expect(
    file.reader().newest(Buffer.from(JSON.stringify(part)), place.dataOffset),
  ).rejects.toMatchObject({
    msgKey: 'archive_damaged',
  });
});

test('hundreds of thousands of disks are continued, each by its own', () => {
  const count = 200_000;
  const layered = (at: number, layers: string[]) =>
    ({ id: `disk ${at}`, layers: layers.map(member => ({ member })) }) as Manifest['disks'][number];
  const base = manifestOf([record('0001_vm.xml', 'domain_xml')], {
    disks: Array.from({ length: count }, (_, at) => layered(at, ['a'])),
  });
  const grownDisks = base.disks.map(({ layers }, at) => ({
    ...layered(at, ['a', 'b']),
    layers: [...layers, ...layered(at, ['b']).layers],
  }));
  const part = partOf({ ...base, disks: grownDisks }, base, {
    ...{ manifest: '0001_manifest.json', dataOffset: 0, sizeBytes: 1, sha256: '' },
  });
  expect(part.continues!.layers.at(-1)).toEqual({ disk: `disk ${count - 1}`, count: 1 });
  expect(part.disks.at(-1)).toEqual(layered(count - 1, ['b']));
  const whole = wholeOf(part, base) as Manifest;
  expect(whole.disks).toHaveLength(count);
  expect(whole.disks.at(-1)).toEqual(layered(count - 1, ['a', 'b']));
});

describe('two disks with one id', () => {
  const disk = (target: string, members: string[]) =>
    ({ id: 'X', target, layers: members.map(member => ({ member })) }) as Manifest['disks'][number];
  const place = { manifest: '0001_manifest.json', dataOffset: 0, sizeBytes: 1, sha256: '' };
  const [first, other, layer] = [record('a', 'disk'), record('c', 'disk'), record('a_s1', 'layer')] as const;
  const xml = record('0001_vm.xml', 'domain_xml');
  const base = manifestOf([xml, first], { disks: [disk('vda', ['a'])] });
  const both = (disks: Manifest['disks']) => manifestOf([xml, first, other, layer], { disks });
  const orders = [
    [disk('vdb', ['c']), disk('vda', ['a', 'a_s1'])],
    [disk('vda', ['a', 'a_s1']), disk('vdb', ['c'])],
  ];

  test.each(orders)('have layers of their own each: %#', (...disks) => {
    const manifest = both(disks);
    expect((wholeOf(partOf(manifest, base, place), base) as Manifest).disks).toEqual(disks);
    expect((wholeOf(partOf(manifest, manifest, place), manifest) as Manifest).disks).toEqual(disks);
  });

  test.each(orders)('as earlier versions wrote them, too: %#', (...disks) => {
    const part = partOf(both(disks), base, place);
    const former = disks.map(one => (one.target === 'vda' ? disk('vda', ['a_s1']) : one));
    const layers = [{ disk: 'X', count: 1 }];
    const written = { ...part, disks: former, continues: { ...part.continues!, layers } };
    expect((wholeOf(written, base) as Manifest).disks).toEqual(disks);
  });
});

describe('an archive has grown', () => {
  const manifest = () => grown(3, 7).then(file => file.wholes[2]!);

  test.each(['states', 'members', 'manifestBytes', 'frames'] as const)('by its %s', async key => {
    const reached = growthOf(await manifest())[key];
    expect(whyGrown(await manifest(), { ...GROWTH_LIMITS, [key]: reached + 1 })).toBeNull();
    expect(whyGrown(await manifest(), { ...GROWTH_LIMITS, [key]: reached })).toMatch(/it has grown to/);
  });

  test('long before its manifest is what it is taken for', async () => {
    const file = await grown(200, 8);
    const whole = file.wholes.at(-1)!;
    expect(growthOf(whole).manifestBytes).toBeGreaterThan(encodeManifest(whole).length * 0.9);
  });
});
