import { describe, expect, test } from '@jest/globals';
import { hasKey } from '@virtkeep/shared/errors';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { deviceDifferences } from './compare.ts';
import { editDomain } from './edit.ts';
import {
  applyIdentity,
  editSnapshot,
  parseDomain,
  parseSnapshot,
  sanitizeForeign,
  stripRuntime,
  withoutSecrets,
} from './index.ts';
import { LIVE_XML, SNAPSHOT_XML } from './sample-xml.ts';

const identity = { name: 'a', uuid: 'b', macs: new Map() };

/** From 0 to below 1. */
function generator(seed: number): () => number {
  const random = seededRandom(seed);
  return () => random(2 ** 32) / 2 ** 32;
}

/** Runs it; anything thrown must be xml_invalid. */
function mayOnlyRefuse(work: () => unknown): void {
  try {
    work();
  } catch (error) {
    if (!hasKey(error, 'xml_invalid')) throw error;
  }
}

/** Work and not waiting is what is bounded: a busy machine changes nothing. */
function cpuMsSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

/** As libvirt nests what it found below a disk. */
function chainXml(layers: number): string {
  let below = '<backingStore/>';
  for (let at = layers - 1; at >= 0; at--)
    below = `<backingStore type='file' index='${at}'><format type='qcow2'/><source file='/p/${at}'/>${below}</backingStore>`;
  return below;
}

function chainedDomain(disks: number, layers: number): string {
  const one = `<disk type='file' device='disk'><source file='/p/top'/>${chainXml(layers)}<target dev='vda'/></disk>`;
  return `<domain><name>x</name><devices>${one.repeat(disks)}</devices></domain>`;
}

describe('the longest chains that libvirt has', () => {
  test.each([
    [1, 199],
    [100, 190],
    [200, 56],
  ])('%i disks of %i layers are read, changed and screened', (disks, layers) => {
    const xml = chainedDomain(disks, layers);
    const read = parseDomain(xml).disks;
    expect(read).toHaveLength(disks);
    expect(read.at(-1)!.backingChain).toHaveLength(layers);
    expect(stripRuntime(xml)).not.toContain('backingStore');
    expect(withoutSecrets(xml)).toBe(xml);
    const gate = { strict: true, fileAt: () => ({ format: 'qcow2' }) as const, devices: new Map() };
    expect(sanitizeForeign(xml, gate).xml).not.toContain('backingStore');
  });

  test('so are those of saved states', () => {
    const xml = `<domainsnapshot><name>s</name>${chainedDomain(20, 160)}</domainsnapshot>`;
    expect(parseSnapshot(xml).domain!.disks.at(-1)!.backingChain).toHaveLength(160);
    expect(editSnapshot(xml, { parent: null })).not.toContain('backingStore');
  });

  test.each([
    ['deeper than any chain', chainedDomain(1, 300)],
    ['more than all chains together', chainedDomain(200, 199)],
    ['deep between layers', `<domain>${'<a><backingStore>'.repeat(100)}`],
  ])('%s is refused', (_what, xml) => {
    expect(() => parseDomain(xml)).toThrow(expect.objectContaining({ msgKey: 'xml_invalid' }));
  });
});

describe('hostile XML', () => {
  test.each([
    ['a DTD', '<!DOCTYPE domain><domain><name>x</name></domain>'],
    ['an entity', '<!DOCTYPE d [<!ENTITY a "b">]><domain><name>&a;</name></domain>'],
    [
      'an external entity',
      '<!DOCTYPE d [<!ENTITY a SYSTEM "file:///etc/passwd">]><domain><name>&a;</name></domain>',
    ],
    ['an unknown entity', '<domain><name>&a;</name></domain>'],
    ['another root', '<pool/>'],
    ['two roots', '<domain><name>x</name></domain><domain/>'],
    ['no name', '<domain/>'],
    ['nothing', ''],
    ['an unbound prefix', '<domain><a:name>x</a:name></domain>'],
    ['a doubled attribute', "<domain a='1' a='2'><name>x</name></domain>"],
    ['a NUL', '<domain><name>\0</name></domain>'],
    ['great depth', '<domain>'.repeat(100_000)],
    ['great width', `<domain>${'<a/>'.repeat(300_000)}</domain>`],
    ['many attributes', `<domain ${Array.from({ length: 100_000 }, (_, i) => `a${i}=''`).join(' ')}/>`],
    [
      'many namespaces',
      `<domain>${Array.from({ length: 100_000 }, (_, i) => `<a xmlns:n${i}='u'/>`).join('')}</domain>`,
    ],
    ['great size', `<domain><name>${'x'.repeat(9_000_000)}</name></domain>`],
  ])('refuses %s at once', (_what, xml) => {
    const before = process.cpuUsage();
    expect(() => parseDomain(xml)).toThrow(expect.objectContaining({ msgKey: 'xml_invalid' }));
    expect(cpuMsSince(before)).toBeLessThan(10_000);
  });

  test('the largest allowed text is read in bounded time', () => {
    const disks = "<disk><target dev='a'/></disk>".repeat(6_000);
    const before = process.cpuUsage();
    expect(parseDomain(`<domain><name>x</name><devices>${disks}</devices></domain>`).disks).toHaveLength(
      6_000,
    );
    expect(cpuMsSince(before)).toBeLessThan(10_000);
  });

  test('damaged texts are read or refused, never anything else', () => {
    const random = generator(20_261_120);
    const bytes = [
      '<',
      '>',
      '/',
      '&',
      "'",
      '"',
      '\0',
      ']]>',
      '<!--',
      '<![CDATA[',
      '<?x',
      '\u{1F600}',
      '\ud800',
      ' ',
    ];
    for (let round = 0; round < 1_500; round++) {
      let xml = round % 2 ? LIVE_XML : SNAPSHOT_XML;
      for (let change = 0; change < 1 + Math.floor(random() * 4); change++) {
        const at = Math.floor(random() * xml.length);
        const cut = Math.floor(random() * 40);
        xml = xml.slice(0, at) + bytes[Math.floor(random() * bytes.length)] + xml.slice(at + cut);
      }
      if (round % 2) {
        mayOnlyRefuse(() => parseDomain(xml));
        mayOnlyRefuse(() => stripRuntime(xml));
        mayOnlyRefuse(() => editDomain(xml, root => applyIdentity(root, identity)));
        mayOnlyRefuse(() => deviceDifferences(xml, LIVE_XML));
      } else {
        mayOnlyRefuse(() => parseSnapshot(xml));
        mayOnlyRefuse(() => editSnapshot(xml, { paths: new Map([['/a', '/b']]), parent: null }));
      }
    }
  });
});
