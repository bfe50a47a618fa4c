/**
 * Our own descriptors, cut up at random: whatever comes, it is refused by a name of ours or becomes a domain that libvirt's schema
 * and the gate of foreign XML take, in bounded time. `VIRTKEEP_OVF_MUTATIONS` and `VIRTKEEP_OVF_SEED` choose more and others.
 */
import { spawnSync } from 'node:child_process';
import { expect, test } from '@jest/globals';
import { hasKey } from '@virtkeep/shared/errors';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { parseDomain, sanitizeForeign } from '../domain-xml/index.ts';
import { applianceOf, domainXmlOf, readOvf, systemsOf } from './index.ts';
import { DESCRIPTORS, TARGET } from './test-kit.ts';

const MUTATIONS = Number(process.env.VIRTKEEP_OVF_MUTATIONS ?? 2000);
const FIRST_SEED = Number(process.env.VIRTKEEP_OVF_SEED ?? 1);
/** CPU time of one; they take a few. */
const BOUND_MS = 2000;
/** How many of the domains libvirt's own tool is asked about. */
const VALIDATED = 20;

const VALUES = [
  '', '0', '-1', '1', '7', '15', '99', '4294967296', '99999999999999999999', '1e9', 'NaN', '../x', '/etc/passwd', 'http://h/x',
  '..', '.', 'a/b', '&lt;script&gt;', "'", '&#13;', '&#10;', '&#x202e;', '\u{1f4a9}', '__proto__', 'constructor', '$' + '{x}',
  'byte * 2^99', 'ovf:/disk/d1', 'ovf:/file/f1', 'ovf:/disk/', 'x'.repeat(3000), '\u{1f4a9}'.repeat(300), 'true', 'efi',
]; // biome-ignore format: a table

type Random = (below: number) => number;

const pick = <T>(random: Random, from: readonly T[]): T => from[random(from.length)]!;

const CHANGES: ((text: string, random: Random) => string)[] = [
  // a value, or a text between elements, becomes another
  (text, random) => replaceOne(text, /"[^"]*"/g, () => `"${pick(random, VALUES)}"`, random),
  (text, random) => replaceOne(text, />[^<>]+</g, () => `>${pick(random, VALUES)}<`, random),
  // whole items go, come twice, or change places with others
  (text, random) => replaceOne(text, /<Item[\s\S]*?<\/Item>/g, () => '', random),
  (text, random) => replaceOne(text, /<Item[\s\S]*?<\/Item>/g, one => one.repeat(1 + random(30)), random),
  (text, random) => replaceOne(text, /<(File|Disk) [^>]*>/g, one => one.repeat(2 + random(3)), random),
  // another kind of device
  (text, random) => replaceOne(text, /ResourceType>\d+</g, () => `ResourceType>${random(40)}<`, random),
  // the text itself
  (text, random) => splice(text, random, ''),
  (text, random) => splice(text, random, pick(random, ['<', '>', '&', '"', '\0', ']]>', '<!--', '<a>'])),
];

function replaceOne(text: string, pattern: RegExp, by: (found: string) => string, random: Random): string {
  const found = [...text.matchAll(pattern)];
  if (found.length === 0) return text;
  const { 0: one, index } = pick(random, found);
  return text.slice(0, index) + by(one) + text.slice(index + one.length);
}

function splice(text: string, random: Random, into: string): string {
  const at = random(text.length);
  return text.slice(0, at) + into + text.slice(at + random(40));
}

function mutated(random: Random): Uint8Array {
  let text = pick(random, Object.values(DESCRIPTORS));
  // what breaks the XML would hide the rest: most get only changes that leave it whole
  const kinds = random(5) === 0 ? CHANGES.length : CHANGES.length - 2;
  for (let count = 1 + random(6); count > 0; count -= 1) text = CHANGES[random(kinds)]!(text, random);
  const bytes = new TextEncoder().encode(text);
  if (random(30) === 0) bytes[random(bytes.length)] = random(256);
  return bytes;
}

const REFUSED = ['ovf_invalid', 'ovf_version_unsupported'] as const;

/** The domains of a descriptor; none: it is refused. */
function domainsOf(bytes: Uint8Array, virtio: boolean): string[] {
  let envelope: ReturnType<typeof readOvf>;
  try {
    envelope = readOvf(bytes, 'x');
  } catch (error) {
    if (hasKey(error, ...REFUSED)) return [];
    throw error;
  }
  for (const { paths, fault } of envelope.files.values()) {
    expect(paths.length === 0).toBe(fault !== null);
    for (const path of paths) expect(path).not.toMatch(/^\/|(^|\/)\.{0,2}(\/|$)|[\\\0]|^\w+:/);
  }
  return systemsOf(envelope).flatMap(({ id }) => {
    try {
      const appliance = applianceOf(envelope, { system: id });
      return domainXmlOf(appliance, { ...TARGET, virtio }).xml;
    } catch (error) {
      if (hasKey(error, 'ovf_system_ambiguous')) return [];
      throw error;
    }
  });
}

/** The gate takes longer than all the rest. */
function judge(xml: string, atTheGate: boolean): void {
  const { disks, name } = parseDomain(xml);
  expect(Buffer.byteLength(name)).toBeLessThanOrEqual(200);
  expect(new Set(disks.map(({ targetDev }) => targetDev)).size).toBe(disks.length);
  const places = [...xml.matchAll(/bus='(\w+)'\/>(?:\s*<readonly\/>)?\s*(<address [^>]*>)/g)].map(
    ([, bus, at]) => `${bus}${at}`,
  );
  expect(new Set(places).size).toBe(places.length);
  if (!atTheGate) return;
  const fileAt = (_path: string, use: string) => ({
    format: use === 'disk' ? ('qcow2' as const) : ('raw' as const),
  });
  expect(sanitizeForeign(xml, { strict: true, fileAt, devices: null }).leftOut).toEqual([]);
}

function complaintsOf(xml: string): string {
  const { status, stderr } = spawnSync('virt-xml-validate', ['-', 'domain'], {
    input: xml,
    encoding: 'utf8',
  });
  return status === 0 ? '' : stderr;
}

test(`${MUTATIONS} descriptors that were tampered with, from seed ${FIRST_SEED}`, () => {
  let domains = 0;
  for (let seed = FIRST_SEED; seed < FIRST_SEED + MUTATIONS; seed += 1) {
    try {
      const before = process.cpuUsage();
      const xmls = domainsOf(mutated(seededRandom(seed)), seed % 3 === 0);
      const { user, system } = process.cpuUsage(before);
      expect((user + system) / 1000).toBeLessThan(BOUND_MS);
      for (const xml of xmls) judge(xml, seed % 4 === 0);
      domains += xmls.length;
      if ((seed - FIRST_SEED) % Math.ceil(MUTATIONS / VALIDATED) === 0 && xmls[0])
        expect(complaintsOf(xmls[0])).toBe('');
    } catch (error) {
      const message = `VIRTKEEP_OVF_SEED=${seed} VIRTKEEP_OVF_MUTATIONS=1: ${(error as Error).message}`;
      throw new Error(message, { cause: error });
    }
  }
  // the mutations leave most of them readable, or nothing would be tried
  if (MUTATIONS >= 100) expect(domains).toBeGreaterThan(MUTATIONS / 2);
});
