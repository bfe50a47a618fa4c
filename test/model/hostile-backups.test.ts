/**
 * Backups with what nobody would write: manifests, definitions, saved states and memories changed anywhere, shown and
 * restored up to where files would be made. Nothing but a refusal may come of it, and no XML that names what is not the
 * restore's.
 */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, normalize } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import type { Element, Node } from '@xmldom/xmldom';
import { manifestFault, parseManifest } from '../../agent/src/archive/format/manifest.ts';
import type { ArchiveTrust, Manifest } from '../../agent/src/archive/index.ts';
import { judgedAs, manifestOf } from '../../agent/src/archive/test-kit.ts';
import { Claims } from '../../agent/src/claims.ts';
import { children, parseXml, withoutSecrets } from '../../agent/src/domain-xml/index.ts';
import { LIVE_XML, SNAPSHOT_XML } from '../../agent/src/domain-xml/sample-xml.ts';
import { NO_OTHER_NODES } from '../../agent/src/other-nodes.ts';
import { samplePool } from '../../agent/src/pools/sample-pool.ts';
import type { OpenedBackup } from '../../agent/src/workflows/archives/source.ts';
import type { WorkflowDependencies } from '../../agent/src/workflows/dependencies.ts';
import {
  backupConfiguration,
  backupWarnings,
  screenBackup,
} from '../../agent/src/workflows/files/show-backup.ts';
import { checkRestore, type RestorePlan } from '../../agent/src/workflows/restore/check.ts';
import {
  movedPaths,
  restoredDefinition,
  restoredMemoryXml,
  restoredState,
  topPaths,
} from '../../agent/src/workflows/restore/definition.ts';
import { refuse } from './scripted-machine.ts';
import { type Random, randomOf } from './undo-model.ts';

const BACKUPS = Number(process.env.VIRTKEEP_HOSTILE_BACKUPS ?? 1000);
const FIRST_SEED = Number(process.env.VIRTKEEP_HOSTILE_SEED ?? 1);

const root = realpathSync(mkdtempSync(join(tmpdir(), 'virtkeep-hostile-')));
afterAll(() => rmSync(root, { recursive: true, force: true }));
const pool = join(root, 'pool');
const outside = join(root, 'outside');
for (const directory of [join(pool, 'backups'), outside]) mkdirSync(directory, { recursive: true });
writeFileSync(join(outside, 'secret'), 'of the node');
writeFileSync(join(pool, 'a.iso'), 'of the pool');
symlinkSync(join(outside, 'secret'), join(pool, 'link.iso'));
symlinkSync(outside, join(pool, 'link'));
const POOL = samplePool('pool', { path: pool, isBase: true });

/** What is put in somewhere: paths that lead out, and what parsers stumble over. */
const NASTY = [
  join(outside, 'secret'),
  `${pool}/../outside/secret`,
  `${pool}/link/secret`,
  `${pool}/link.iso`,
  `${pool}/backups/made.tar`,
  ...['/etc/shadow', '../../outside/secret', '/', '', '.', '..', '\0', 'vda', 'sda', 'second', '__proto__'],
  ...[
    'a'.repeat(5000),
    '&lt;',
    ']]>',
    '\u{1f600}',
    '-1',
    '1e400',
    '99999999999999999999',
    'external',
    'file',
  ],
];
const HOSTILE_XML = [
  `<disk type='file' device='disk'><source file='${outside}/secret'/><target dev='vda' bus='virtio'/></disk>`,
  `<disk type='file' device='cdrom'><source file='${outside}/secret'/><target dev='sdb'/></disk>`,
  `<source file='${outside}/secret'/>`,
  `<memory snapshot='external' file='${outside}/secret'/>`,
  `<devices><serial type='file'><source path='${outside}/secret'/></serial></devices>`,
  `<serial type='file'><source path='${outside}/secret'/></serial>`,
  `<x:source xmlns:x='urn:x' file='${outside}/secret'/>`,
  `<emulator>${outside}/secret</emulator><kernel>${outside}/secret</kernel>`,
  `<backingStore type='file'><source file='${outside}/secret'/></backingStore>`,
  `<domain><name>x</name><devices><emulator>${outside}/secret</emulator></devices></domain>`,
  "<!DOCTYPE x [<!ENTITY y 'z'>]>",
  '<!-- -->',
];

const pick = <T>(random: Random, list: readonly T[]): T => list[random(list.length)]!;

/** A text with some of its elements or values gone, doubled, moved, or replaced. */
function mutatedXml(xml: string, random: Random): string {
  let text = xml;
  for (let changes = random(4); changes > 0; changes -= 1) {
    const values = [...text.matchAll(/=(['"])[^'"]*\1/g)];
    const elements = [...text.matchAll(/<(\w+)[^<>]*(?:\/>|>[^<>]*<\/\1>)/g)];
    const names = [...text.matchAll(/<\/?([\w:]+)/g)];
    const value = pick(random, values);
    const element = pick(random, elements);
    const put = (at: number, length: number, by: string) => {
      text = text.slice(0, at) + by + text.slice(at + length);
    };
    switch (random(7)) {
      case 0:
        put(random(text.length), 1 + random(20), '');
        break;
      case 1:
      case 2:
        if (value) put(value.index, value[0].length, `='${pick(random, NASTY)}'`);
        break;
      case 3:
        if (element) put(element.index, element[0].length, random(2) ? '' : element[0].repeat(2));
        break;
      case 4:
        if (element) put(element.index, 0, pick(random, HOSTILE_XML));
        break;
      case 5:
        if (element) put(element.index, element[0].length, pick(random, elements)![0]);
        break;
      default:
        put(pick(random, names)?.index ?? 0, 0, pick(random, NASTY));
    }
  }
  return text;
}

/** A manifest with some of its values replaced, gone or doubled. */
function mutatedManifest(manifest: Manifest, random: Random): unknown {
  const copy = JSON.parse(JSON.stringify(manifest)) as Record<string, unknown>;
  for (let changes = random(4); changes > 0; changes -= 1) {
    let at: Record<string, unknown> = copy;
    let key = pick(random, Object.keys(at));
    for (let depth = 0; depth < 8; depth += 1) {
      const next = at[key];
      if (typeof next !== 'object' || next === null || Object.keys(next).length === 0 || random(4) === 0)
        break;
      at = next as Record<string, unknown>;
      key = pick(random, Object.keys(at));
    }
    const former = at[key];
    const kind = random(6);
    if (kind === 0) delete at[key];
    else if (kind === 1 && Array.isArray(at)) at.push(former);
    else if (kind === 2) at[key] = pick(random, [null, -1, 1e308, 0, true, [], {}, [[]]]);
    else at[key] = typeof former === 'number' ? pick(random, [0, 1, -1, 2 ** 53, 0.5]) : pick(random, NASTY);
  }
  return copy;
}

const NAMES = { xml: '0001_vm.xml', state: 's.xml', memory: 'm.memory', base: 'a.qcow2', top: 'b.snapshot' };

function plainManifest(): Manifest {
  const members = Object.entries(NAMES).map(([what, name]) => ({
    ...{ name, sizeBytes: 1000, dataOffset: 0, sha256: null, formerPath: null },
    kind: what === 'xml' ? ('domain_xml' as const) : ('other' as const),
  }));
  const layer = (member: string, formerPath: string, frozenBy: string | null) => ({
    ...{ member, stateNumber: 1, frozenBy, formerPath },
  });
  const sides = { nvram: null, tpm: null };
  const plain = manifestOf(members);
  return {
    ...plain,
    states: plain.states.map(state => ({ ...state, memoryMember: NAMES.memory })),
    disks: [
      {
        ...{ id: newId(), target: 'vda', bus: 'virtio', virtualSizeBytes: 2 ** 20, format: 'qcow2' },
        ...{
          formerFormat: 'qcow2',
          formerPath: `${pool}/top.qcow2`,
          poolId: null,
          poolName: null,
          base: null,
        },
        layers: [
          layer(NAMES.base, `${pool}/mid.qcow2`, 'second'),
          layer(NAMES.top, `${pool}/top.qcow2`, null),
        ],
      },
    ],
    isos: [
      {
        ...{ target: 'sdb', member: null, formerPath: `${pool}/a.iso`, sizeBytes: 1 },
        ...{ poolId: null, poolName: null },
      },
    ],
    luns: [{ target: 'sda', formerPath: '/dev/sdx', wwn: null }],
    snapshots: [
      {
        ...{ name: 'second', parent: null, current: true, created: null, description: null, ...sides },
        ...{ xmlMember: NAMES.state, memoryMember: NAMES.memory, formerMemoryPath: `${pool}/second.memory` },
      },
    ],
  };
}

const here = (xml: string) =>
  xml
    .replaceAll('/pool/', `${pool}/`)
    .replaceAll('/iso/', `${pool}/`)
    .replace('<parent>\n    <name>first</name>\n  </parent>', '');

const libvirt = {
  domains: async () => [],
  domainByUuid: async () => {
    throw refuse(42, 'no such domain');
  },
} as unknown as Libvirt;

async function backupOf(random: Random): Promise<OpenedBackup> {
  const raw = Buffer.from(JSON.stringify(mutatedManifest(plainManifest(), random)));
  const manifest = parseManifest(raw, 'a') as Manifest;
  const fault = manifestFault(manifest);
  if (fault) throw new VirtkeepError('archive_damaged', { path: 'a', reason: fault });
  const xml = mutatedXml(here(LIVE_XML), random);
  const saved = Buffer.from(mutatedXml(here(SNAPSHOT_XML), random));
  const archive = {
    members: manifest.members,
    manifestOfState: async () => manifest,
    readMember: async () => saved,
    mostBytes: async () => 1000,
    countBytes: async () => 1000,
  };
  return { archive, manifest, state: manifest.states.at(-1)!, xml } as unknown as OpenedBackup;
}

const MADE_MEMORY = `${pool}/made.memory`;

/** All that libvirt would get. */
function xmlsOf(plan: RestorePlan, memoryXml: string): [string, string][] {
  const moved = new Map(
    plan.states.flatMap(({ record }) =>
      record.formerMemoryPath === null ? [] : [[record.formerMemoryPath, MADE_MEMORY]],
    ) as [string, string][],
  );
  const paths = movedPaths(plan, moved);
  return [
    ['domain', restoredDefinition(plan).xml],
    ...plan.states.map((state): [string, string] => [
      'domainsnapshot',
      restoredState(state, plan, paths, moved.values()).xml,
    ]),
    ['domain', restoredMemoryXml(memoryXml, plan, topPaths(plan.placement), paths).xml],
  ];
}

/** Elements whose text is a path. */
const PATH_TEXTS = new Set(
  'loader nvram kernel initrd dtb emulator path backend database script table'.split(' '),
);

/** What libvirt and the agent read: not what is kept for other programs. */
function isRead(element: Element): boolean {
  for (let at: Node | null = element; at; at = at.parentNode) if (at.nodeName === 'metadata') return false;
  return true;
}

/** Every path that an XML names, but in what is free text. */
function pathsIn(rootName: string, xml: string): string[] {
  const { document } = parseXml(xml, rootName, 'what was restored');
  return Array.from(document.getElementsByTagName('*'))
    .filter(isRead)
    .flatMap(element => {
      const values = Array.from(element.attributes, ({ value }) => value);
      const text = PATH_TEXTS.has(element.localName ?? '') ? [element.textContent?.trim() ?? ''] : [];
      return [...values, ...text].filter(value => value.startsWith('/'));
    });
}

/** Of an own archive: the files of disks and saved states alone, wherever libvirt looks for them, in every element of the name. */
function filesIn(rootName: string, xml: string): string[] {
  const { root: top } = parseXml(xml, rootName, 'what was restored');
  const at = (path: string): Element[] =>
    path
      .split('/')
      .reduce<Element[]>(
        (found, name) =>
          found.flatMap(element => children(element).filter(({ localName }) => localName === name)),
        [top],
      );
  const domains = ['', 'domain/', 'inactiveDomain/'];
  const disks = domains.flatMap(path => at(`${path}devices/disk/source`));
  const states = rootName === 'domainsnapshot' ? [...at('memory'), ...at('disks/disk/source')] : [];
  return [...disks, ...states].flatMap(element => element.getAttribute('file') ?? []);
}

function expectOwn(plan: RestorePlan, rootName: string, xml: string): void {
  const made = new Set([
    ...plan.placement.disks.flatMap(({ layers }) => layers.map(({ path }) => path)),
    ...plan.placement.drives.values(),
    MADE_MEMORY,
  ]);
  const paths = plan.trust === 'own' ? filesIn(rootName, xml) : pathsIn(rootName, xml);
  const foreign = paths.filter(
    path => !made.has(path) && !path.startsWith('/usr/share/') && !/^\/dev\/(u?random|hwrng)$/.test(path),
  );
  if (foreign.length > 0 || [...made].some(path => path !== null && leavesPool(path)))
    throw new Error(`it names ${[...foreign, ...made].join(' ')} in ${xml}`);
}

const leavesPool = (path: string): boolean =>
  path !== normalize(path) || !path.startsWith(`${pool}/`) || path.startsWith(`${pool}/link`);

/** @returns what became of it: `restored`, or the key of the refusal */
async function tryOne(seed: number): Promise<string> {
  const random = randomOf(seed);
  const trust = pick<ArchiveTrust>(random, ['own', 'fleet', 'foreign']);
  const signal = AbortSignal.timeout(60_000);
  const claims = new Claims();
  const dependencies = {
    ...{
      libvirt: () => libvirt,
      judge: judgedAs(trust),
      otherNodes: NO_OTHER_NODES,
      claims,
      nodeName: 'n',
      saveDirectory: '/nowhere',
    },
  } as unknown as WorkflowDependencies;
  try {
    const backup = await backupOf(random);
    const { archive, manifest, state, xml } = backup;
    backupConfiguration(manifest, state, xml);
    backupWarnings(manifest, state, judgedAs(trust)(archive));
    await screenBackup(backup, trust, signal);
    withoutSecrets(xml);
    const request = StartRestoreRequest.fromPartial({
      domainId: newId(),
      keepIdentity: random(2) === 0,
      poolId: random(2) === 0 ? POOL.id : '',
      flatten: random(4) === 0,
    });
    const file = { pool: POOL, path: 'a', filename: 'a' };
    const source = { pools: [POOL], file, backup };
    const plan = await checkRestore(dependencies, request, source, { claim: () => {}, signal });
    for (const [rootName, text] of xmlsOf(plan, mutatedXml(here(LIVE_XML), random)))
      expectOwn(plan, rootName, text);
    return 'restored';
  } catch (error) {
    if (error instanceof VirtkeepError && error.msgKey !== 'internal') return error.msgKey;
    throw Object.assign(error as Error, {
      message: `VIRTKEEP_HOSTILE_SEED=${seed} VIRTKEEP_HOSTILE_BACKUPS=1: ${(error as Error).message}`,
    });
  }
}

test(`${BACKUPS} backups that were tampered with, from seed ${FIRST_SEED} on, bring nothing of the node`, async () => {
  const ends = new Map<string, number>();
  for (let seed = FIRST_SEED; seed < FIRST_SEED + BACKUPS; seed += 1) {
    const end = await tryOne(seed);
    ends.set(end, (ends.get(end) ?? 0) + 1);
  }
  // enough of them must get as far as it goes
  if (BACKUPS >= 100) expect(ends.get('restored')).toBeGreaterThan(BACKUPS / 10);
}, 1_200_000);
