/**
 * Archives without manifest whose definitions, saved states, headers and names were changed anywhere: they are read or refused, in bounded
 * time, and what is read names only members that are there, each image in one disk.
 */
import { expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { type Archive, manifestFault } from '../../archive/index.ts';
import { LIVE_XML, SNAPSHOT_XML } from '../../domain-xml/sample-xml.ts';
import { backupConfiguration, backupWarnings } from '../files/show-backup.ts';
import { describeForeign } from './describe.ts';

const ARCHIVES = Number(process.env.VIRTKEEP_HOSTILE_BACKUPS ?? 1000);
const FIRST_SEED = Number(process.env.VIRTKEEP_HOSTILE_SEED ?? 1 + Math.floor(Math.random() * 1_000_000));

/** A small generator of its own, so that a failing seed can be run again. */
function randomOf(seed: number): (below: number) => number {
  let state = seed;
  return below => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}
type Random = ReturnType<typeof randomOf>;

const pick = <T>(random: Random, list: readonly T[]): T => list[random(list.length)]!;

const NAMES = [
  ...['vda.qcow2', 'web.qcow2', 'web.s1', 'web_s1.snapshot', 'second.snapshot', 'vda', '..', '', '__proto__'],
  ...[
    '1_web.xml',
    '2_web.xml',
    '99999999999999999999_x.xml',
    'x.xml',
    'a.memory',
    'cd.iso',
    '1_nvram.fd',
    'a'.repeat(255),
  ],
];
const BACKINGS = [
  ...NAMES.map(name => `/x/${name}`),
  ...NAMES,
  'json:{"file":{"filename":"/x/web.qcow2"}}',
  'nbd://h/x',
  '\0',
];

function image(random: Random): Buffer {
  const head = Buffer.alloc(512 + random(3) * 512);
  if (random(12) === 0) return head;
  const backing = random(3) === 0 ? '' : pick(random, BACKINGS);
  head.writeUInt32BE(0x514649fb, 0);
  head.writeUInt32BE(random(20) === 0 ? random(9) : 3, 4);
  head.writeBigUInt64BE(backing === '' ? 0n : 112n, 8);
  head.writeUInt32BE(Buffer.byteLength(backing), 16);
  head.writeBigUInt64BE(BigInt(random(2) === 0 ? 2 ** 20 : 2 ** 40), 24);
  head.writeUInt32BE(104, 100);
  head.write(backing, 112);
  if (random(8) === 0) head[random(110)] = random(256);
  return head;
}

function changedText(text: string, random: Random): string {
  let changed = text.replaceAll(/'\/pool\/[^']*'/g, () => `'/x/${pick(random, NAMES)}'`);
  for (let times = random(3); times > 0; times -= 1) {
    const at = random(changed.length);
    changed =
      changed.slice(0, at) +
      pick(random, [...NAMES, '<', '<!--', '<?', '/>', "'"]) +
      changed.slice(at + random(9));
  }
  return changed;
}

function archiveOf(random: Random): Pick<Archive, 'path' | 'members' | 'again' | 'readMember' | 'readHead'> {
  const contents = new Map<string, Buffer>();
  for (let count = random(9); count >= 0; count -= 1) {
    const name = pick(random, NAMES);
    const text = random(3) === 0 ? SNAPSHOT_XML : LIVE_XML;
    contents.set(name, name.endsWith('.xml') ? Buffer.from(changedText(text, random)) : image(random));
  }
  if (random(4) > 0)
    contents.set('3_web.xml', Buffer.from(LIVE_XML.replaceAll(/'\/pool\/[^']*'/g, "'/x/web.qcow2'")));
  const kindOf = (name: string) =>
    name.endsWith('.qcow2')
      ? 'disk'
      : name.endsWith('.snapshot')
        ? 'layer'
        : name.endsWith('.memory')
          ? 'memory'
          : 'other';
  const members = [...contents].map(([name, bytes], index) => ({
    ...{ name, kind: kindOf(name), sizeBytes: bytes.length, dataOffset: 512 * index, sha256: null },
    formerPath: null,
  })) as Archive['members'];
  const read = async (name: string) => contents.get(name)!;
  return { path: 'a.tar', members, again: null, readMember: read, readHead: read };
}

/** @returns what became of it: `read`, or the key of the refusal */
async function tryOne(seed: number): Promise<string> {
  const archive = archiveOf(randomOf(seed));
  try {
    const { manifest } = await describeForeign(archive, new Date(0), AbortSignal.timeout(60_000));
    expect(manifestFault(manifest)).toBeUndefined();
    const layers = manifest.disks.flatMap(disk => disk.layers.map(({ member }) => member));
    expect(new Set(layers).size).toBe(layers.length);
    const state = manifest.states[0]!;
    const xml = (await archive.readMember(state.xmlMember, AbortSignal.timeout(60_000))).toString();
    backupConfiguration(manifest, state, xml);
    backupWarnings(manifest, state, { trust: 'foreign', byOneNode: false });
    return 'read';
  } catch (error) {
    if (error instanceof VirtkeepError && error.msgKey !== 'internal') return error.msgKey;
    throw Object.assign(error as Error, {
      message: `VIRTKEEP_HOSTILE_SEED=${seed} VIRTKEEP_HOSTILE_BACKUPS=1: ${(error as Error).message}`,
    });
  }
}

test(`${ARCHIVES} archives without manifest, from seed ${FIRST_SEED} on, are read or refused`, async () => {
  const ends = new Map<string, number>();
  for (let seed = FIRST_SEED; seed < FIRST_SEED + ARCHIVES; seed += 1) {
    const end = await tryOne(seed);
    ends.set(end, (ends.get(end) ?? 0) + 1);
  }
  // enough of them must get as far as it goes
  if (ARCHIVES >= 1000) expect(ends.get('read') ?? 0).toBeGreaterThan(10);
}, 120_000);
