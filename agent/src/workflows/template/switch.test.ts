import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { type Domain, ErrorCode, type Libvirt, LibvirtError } from '@virtkeep/node-libvirt';
import { NO_OTHER_NODES } from '../../other-nodes.ts';
import { samplePool } from '../../pools/sample-pool.ts';
import type { TemplateChange } from '../effect.ts';
import { switchTemplate } from './switch.ts';

const TEMPLATE = '11111111-2222-4333-8444-555555555555';
const CLONES = ['21111111-2222-4333-8444-555555555555', '31111111-2222-4333-8444-555555555555'];

let directory: string;
let change: TemplateChange;
/** Per domain that exists its image. */
let domains: Map<string, string>;
let warnings: string[];
/** Domains whose memory somebody has saved, and those of which somebody has saved a state. */
let memorySaved: Set<string>;
let stateSaved: Set<string>;

const at = (name: string) => join(directory, name);
const qemu = (...args: string[]) => execFileSync('qemu-io', ['-f', 'qcow2', ...args], { encoding: 'utf8' });
const write = (name: string, pattern: string) => qemu('-c', `write -P ${pattern} 0 64k`, at(name));
/** Whether all of the first cluster is that. */
const reads = (name: string, pattern: string) =>
  !qemu('-c', `read -P ${pattern} 0 64k`, at(name)).includes('verification failed');

function image(name: string, below?: string): void {
  const backing = below === undefined ? [] : ['-u', '-b', at(below), '-F', 'qcow2'];
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...backing, at(name), '1M']);
}

/** A template with two thin clones, and what its change has made. */
beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'switch-')));
  warnings = [];
  memorySaved = new Set();
  stateSaved = new Set();
  domains = new Map([TEMPLATE, ...CLONES].map((id, index) => [id, index === 0 ? 'base' : `clone-${index}`]));
  image('base');
  write('base', '1');
  image('.x-3.new');
  write('.x-3.new', '2');
  for (const index of [1, 2]) {
    image(`clone-${index}`, 'base');
    write(`clone-${index}`, '9');
    image(`.x-${index}.new`, 'base');
  }
  const files = [...CLONES, TEMPLATE].map((domainId, index) => ({
    domainId,
    from: at(`.x-${index + 1}.new`),
    to: at(domains.get(domainId)!),
  }));
  change = { templateId: TEMPLATE, version: 2, cloneIds: CLONES, files };
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

function domain(uuid: string): Domain {
  const disk = `<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${at(domains.get(uuid)!)}'/><target dev='vda'/></disk>`;
  const xml = `<domain type='qemu'><name>vm-${uuid[0]}</name><uuid>${uuid}</uuid><devices>${disk}</devices></domain>`;
  return {
    uuid,
    name: `vm-${uuid[0]}`,
    isActive: async () => false,
    isPersistent: async () => true,
    hasManagedSave: async () => memorySaved.has(uuid),
    managedSaveXml: async () => xml,
    currentSnapshot: async () => null,
    snapshots: async () =>
      stateSaved.has(uuid)
        ? [{ name: 's', xml: async () => `<domainsnapshot><name>s</name>${xml}</domainsnapshot>` }]
        : [],
    setMetadata: async () => {},
    xml: async () => xml,
  } as unknown as Domain;
}

const libvirt = {
  domains: async () => [...domains.keys()].map(domain),
  domainByUuid: async (id: string) => {
    if (domains.has(id)) return domain(id);
    throw new LibvirtError(
      { kind: 'libvirt', code: ErrorCode.NO_DOMAIN, domain: 10, level: 2, message: 'no domain' },
      'virDomainLookupByUUID',
    );
  },
} as unknown as Libvirt;

const carryOut = () =>
  switchTemplate(
    {
      libvirt: () => libvirt,
      pools: async () => [samplePool('one', { path: directory })],
      otherNodes: NO_OTHER_NODES,
    },
    change,
    { signal: AbortSignal.timeout(240_000), warn: text => warnings.push(text) },
  );

const pieces = () => change.files.filter(({ from }) => existsSync(from));

/** Keeps an image open as QEMU does. @returns its end */
async function open(name: string): Promise<() => Promise<void>> {
  const daemon = spawn('qemu-storage-daemon', [
    '--blockdev',
    `driver=qcow2,node-name=d,file.driver=file,file.filename=${at(name)}`,
    '--nbd-server',
    `addr.type=unix,addr.path=${at('sock')}`,
    '--export',
    'nbd,id=e,node-name=d,writable=on',
    '--pidfile',
    at('pid'),
  ]);
  const ended = once(daemon, 'exit');
  while (!existsSync(at('pid')) && daemon.exitCode === null)
    await new Promise(resolve => setTimeout(resolve, 20));
  return async () => {
    daemon.kill();
    await ended;
  };
}

test('the new files take the places of the former ones', async () => {
  await carryOut();
  expect([reads('base', '2'), reads('clone-1', '2'), reads('clone-2', '2')]).toEqual([true, true, true]);
  expect(pieces()).toEqual([]);
  await carryOut();
  expect(warnings).toEqual([]);
});

describe('a domain that was undefined since', () => {
  test('a clone holds nothing up, and its disk stays', async () => {
    domains.delete(CLONES[1]!);
    await carryOut();
    expect([reads('base', '2'), reads('clone-1', '2'), reads('clone-2', '9')]).toEqual([true, true, true]);
    expect(pieces()).toEqual([]);
  });

  test('the template gets its new images: the clones stand on them', async () => {
    domains.delete(TEMPLATE);
    await carryOut();
    expect([reads('base', '2'), reads('clone-1', '2')]).toEqual([true, true]);
  });

  test('a clone that is defined again before the switch gets its new disk', async () => {
    const [id, file] = [CLONES[1]!, domains.get(CLONES[1]!)!];
    domains.delete(id);
    const close = await open('base');
    await expect(carryOut()).rejects.toMatchObject({ msgKey: 'image_in_use' });
    await close();
    domains.set(id, file);
    await carryOut();
    expect(reads('clone-2', '2')).toBe(true);
  });
});

test('one file that somebody has open stops all of them, and none halfway', async () => {
  const close = await open('clone-2');
  await expect(carryOut()).rejects.toMatchObject({ msgKey: 'image_in_use' });
  expect(pieces()).toHaveLength(3);
  await close();
  await carryOut();
  expect(pieces()).toEqual([]);
});

test('a clone that was started between two renames is empty again, and that is told', async () => {
  execFileSync('mv', [at('.x-1.new'), at('clone-1')]);
  execFileSync('mv', [at('.x-2.new'), at('clone-2')]);
  write('clone-1', '7');
  await carryOut();
  expect([reads('base', '2'), reads('clone-1', '2'), reads('clone-2', '2')]).toEqual([true, true, true]);
  expect(warnings).toEqual([expect.stringContaining(at('clone-1'))]);
  // upon the new image it is its own
  write('clone-1', '7');
  await carryOut();
  expect(reads('clone-1', '7')).toBe(true);
});

describe('what somebody has kept of a clone since goes with its former disk alone, so the switch waits', () => {
  const CLONE = CLONES[1]!;
  test.each<[string, () => void, () => void, string]>([
    ['its memory', () => memorySaved.add(CLONE), () => memorySaved.clear(), 'the saved memory of vm-3'],
    ['a state', () => stateSaved.add(CLONE), () => stateSaved.clear(), 'the saved states of vm-3 (s)'],
    [
      'a layer on its disk',
      () => {
        execFileSync('mkdir', [at('else')]);
        image('else/layer', 'clone-2');
        domains.set(CLONE, 'else/layer');
      },
      () => domains.set(CLONE, 'clone-2'),
      'else/layer, which stands on it',
    ],
  ])('%s', async (_what, keep, discard, user) => {
    // its new overlay is in place already, or is not
    for (const isSwitched of [false, true]) {
      if (isSwitched) execFileSync('mv', [at('.x-2.new'), at('clone-2')]);
      keep();
      await expect(carryOut()).rejects.toMatchObject({
        msgKey: 'image_in_use',
        params: { path: at('clone-2'), user: expect.stringContaining(user) },
      });
      execFileSync('rm', ['-rf', at('else')]);
      expect([reads('base', '1'), pieces().length]).toEqual([true, isSwitched ? 2 : 3]);
    }
    discard();
    await carryOut();
    expect([reads('base', '2'), reads('clone-2', '2')]).toEqual([true, true]);
    // upon the new image it is nobody's but its own
    keep();
    await carryOut();
  });
});
