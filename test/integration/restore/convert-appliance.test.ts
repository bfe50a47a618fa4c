// What comes with an appliance besides its disks: images of drives, a signature, ways in which all of it is packed; and what it must not get.
import { execFileSync } from 'node:child_process';
import { createPrivateKey, createSign, randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import { streamVmdk } from '../../../agent/src/appliance/test-kit.ts';
import { openArchive } from '../../../agent/src/archive/index.ts';
import { sata } from '../../../agent/src/ovf/test-kit.ts';
import { AgentAlone, fileOf } from '../../e2e/agent-alone.ts';
import { Guest } from '../../lab/guest.ts';
import { Recorder } from '../../lab/recorder.ts';
import { ConvertLab, type Files, manifestOf, ova, ovf } from './convert-lab.ts';

const DISK = Buffer.concat([randomBytes(2 * MiB), Buffer.alloc(MiB), randomBytes(MiB)]);
// what a prober would take for an image of another format
const ISO = Buffer.concat([Buffer.from('QFI\xfb\0\0\0\x03', 'latin1'), randomBytes(MiB + 700)]);
const RAW = 'http://example.com/raw';
const trust = mkdtempSync(join(tmpdir(), 'vk-trust-'));
const CA_FILE = join(trust, 'authorities.pem');

let alone: AgentAlone;
let lab: ConvertLab;
let disk: Buffer;

beforeAll(async () => {
  issue('root', 'stranger');
  writeFileSync(CA_FILE, readFileSync(join(trust, 'root.pem')));
  alone = await AgentAlone.start({ import: { trusted_ca_file: CA_FILE } });
  lab = new ConvertLab(alone);
  disk = lab.streamOf(DISK);
});
afterAll(async () => {
  await alone?.stop();
  rmSync(trust, { recursive: true });
});
afterEach(() => lab.clear());

const at = (name: string) => join(alone.world.dir, name);
const controller = sata(3);
const one = { href: 'disk.vmdk', bytes: DISK.length };

describe('images in drives', () => {
  const images = [{ href: 'setup.iso' }, { href: 'gone.iso' }];
  const files = () => ({ 'cd.ovf': ovf('cd', [one], { images, controller }), 'disk.vmdk': disk });

  test.each([
    ['cd.ova', {}],
    ['cd.ova', { compress: true, hashSum: true }],
    ['cd.ovf', {}],
  ])('of %s with %j are in the VM that is restored', async (filename, request) => {
    const all: Files = { ...files(), 'setup.iso': ISO };
    if (filename === 'cd.ova') lab.put(filename, ova({ ...all, 'cd.mf': manifestOf(all) }));
    else for (const [name, bytes] of Object.entries(all)) lab.put(name, bytes);
    const operation = await alone.heard(await lab.convert(filename, request));
    expect(operation.warnings).toContainEqual(
      expect.stringContaining('"gone.iso", the image of a drive, is not there'),
    );
    const { path, filename: made } = fileOf(operation);
    const archive = await openArchive(path, AbortSignal.timeout(60_000));
    expect(await archive.verify({ signal: AbortSignal.timeout(60_000) })).toMatchObject({ problems: [] });
    const member = archive.manifest!.isos.find(iso => iso.member !== null)!.member!;
    expect(member).toMatch(/^setup_[0-9a-f-]{36}\.iso$/);
    await archive.close();
    const restore = await alone.startRestore(made, { allowForeign: true });
    const { name, disks } = resultOf(await alone.heard(restore), 'restore');
    const xml = await new Guest(alone.world.node, name).xml(true);
    const [, iso] =
      /<disk type='file' device='cdrom'>\s*<driver name='qemu' type='raw'\/>\s*<source file='([^']+)'/.exec(
        xml,
      )!;
    expect(readFileSync(iso!).equals(ISO)).toBe(true);
    await alone.world.node.virsh('undefine', name);
    for (const file of [iso!, ...disks.map(({ path }) => path)]) rmSync(file);
  });

  test('stay behind when asked for, and one that the manifest does not have as it is is refused', async () => {
    const all: Files = { ...files(), 'setup.iso': ISO };
    lab.put('without.ova', ova(all));
    const { path } = fileOf(await alone.heard(await lab.convert('without.ova', { excludeIso: true })));
    const archive = await openArchive(path, AbortSignal.timeout(60_000));
    expect(archive.manifest!.isos).toEqual([]);
    await archive.close();
    lab.clear();
    lab.put('bent.ova', ova({ ...all, 'cd.mf': manifestOf({ ...all, 'setup.iso': 'x' }) }));
    const bent = await alone.ended(await lab.convert('bent.ova'));
    expect(bent).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'hash_mismatch' } });
    expect(lab.made()).toEqual([]);
  });
});

/** Certificates of authorities, and of a signer whom the first of them has made. */
function issue(...names: string[]): void {
  const make = (name: string, isAuthority: boolean, ...more: string[]) => {
    const files = ['-keyout', `${name}.key`, '-out', `${name}.pem`, '-subj', `/CN=${name}`, '-days', '10'];
    const constraints = `basicConstraints=critical,CA:${isAuthority ? 'TRUE' : 'FALSE'}`;
    const args = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', ...files, '-addext', constraints, ...more];
    execFileSync('openssl', args, { cwd: trust, stdio: 'pipe' });
  };
  for (const name of names) make(name, true);
  make('signer', false, '-CA', `${names[0]}.pem`, '-CAkey', `${names[0]}.key`);
}

describe('a signature', () => {
  function signed(name: string, of?: string): void {
    const whole = { 'vm.ovf': ovf('vm', [one], { controller }), 'disk.vmdk': disk };
    const manifest = manifestOf(whole);
    const key = createPrivateKey(readFileSync(join(trust, 'signer.key')));
    const signature = createSign('SHA256')
      .update(of ?? manifest)
      .sign(key)
      .toString('hex');
    const cert = `SHA256(vm.mf)= ${signature}\n${readFileSync(join(trust, 'signer.pem'), 'utf8')}`;
    lab.put(name, ova({ ...whole, 'vm.mf': manifest, 'vm.cert': cert }));
  }
  const trusting = (name: string) => writeFileSync(CA_FILE, readFileSync(join(trust, `${name}.pem`)));
  afterEach(() => trusting('root'));

  const shown = async (filename: string) => {
    const file = { poolId: alone.world.node.pool(1).uuid, filename };
    const { signedBy, warnings } = await alone.backups.show({ file });
    return { signedBy, warnings: warnings.filter(({ key }) => key.startsWith('signature')) };
  };

  test('is told when the file is shown, with what a conversion would refuse', async () => {
    signed('signed.ova');
    signed('forged.ova', 'another manifest');
    expect(await shown('signed.ova')).toEqual({ signedBy: 'CN=signer', warnings: [] });
    lab.put('packed.ova', gzipSync(readFileSync(join(lab.directory, 'signed.ova'))));
    expect(await shown('packed.ova')).toEqual({ signedBy: 'CN=signer', warnings: [] });
    const refused = (reason: RegExp) => ({
      signedBy: undefined,
      warnings: [{ key: 'signature_refused', text: expect.stringMatching(reason) }],
    });
    expect(await shown('forged.ova')).toEqual(refused(/its signature is not that of its manifest/));
    trusting('stranger');
    expect(await shown('signed.ova')).toEqual(refused(/vouches for the certificate "CN=signer"/));
    rmSync(CA_FILE);
    expect(await shown('signed.ova')).toEqual(refused(new RegExp(CA_FILE)));
    trusting('root');
    lab.put('plain.ova', ova({ 'vm.ovf': ovf('vm', [one], { controller }), 'disk.vmdk': disk }));
    const text = 'The appliance is not signed: nobody vouches for it.';
    expect(await shown('plain.ova')).toEqual({ signedBy: undefined, warnings: [{ key: 'signature', text }] });
  });

  test('for which an authority of the node vouches is told', async () => {
    signed('signed.ova');
    const operation = await alone.heard(await lab.convert('signed.ova'));
    expect(resultOf(operation, 'convertBackup').signedBy).toBe('CN=signer');
    expect(operation.warnings.filter(text => /sign|vouches/.test(text))).toEqual([]);
  });

  test('of a stranger, or of another manifest, is refused, and one that is missing is told', async () => {
    signed('signed.ova');
    signed('forged.ova', 'another manifest');
    trusting('stranger');
    for (const [filename, reason] of [
      ['signed.ova', /none of the given authorities vouches for the certificate "CN=signer"/],
      ['forged.ova', /its signature is not that of its manifest/],
    ] as const) {
      const operation = await alone.ended(await lab.convert(filename));
      expect(operation).toMatchObject({
        state: OperationState.FAILED,
        error: { msgKey: 'appliance_invalid' },
      });
      expect(operation.error!.detail).toMatch(reason);
    }
    expect(lab.made()).toEqual([]);
    lab.put('plain.ova', ova({ 'vm.ovf': ovf('vm', [one], { controller }), 'disk.vmdk': disk }));
    const { warnings, resultJson } = await alone.heard(await lab.convert('plain.ova'));
    expect(warnings).toContain('The appliance is not signed: nobody vouches for it.');
    expect(resultJson).not.toContain('signedBy');
  });

  test('cannot be asked about when the authorities are not there', async () => {
    signed('signed.ova');
    rmSync(CA_FILE);
    const operation = await alone.ended(await lab.convert('signed.ova'));
    expect(operation.error).toMatchObject({ msgKey: 'io_failed', detail: expect.stringContaining(CA_FILE) });
  });
});

test('an OVA is unpacked from xz and zip', async () => {
  const whole = { 'all.ovf': ovf('all', [one], { controller }), 'disk.vmdk': disk };
  const plain = ova({ ...whole, 'all.mf': manifestOf(whole) });
  const name = at('all.ova');
  writeFileSync(name, plain);
  const maxBuffer = 64 * MiB;
  lab.put('xz.ova', execFileSync('xz', ['-0', '-c', name], { maxBuffer }));
  // into a file: to a pipe it writes whole blocks
  execFileSync('bsdtar', ['--format=zip', '-cf', at('zip'), '-C', alone.world.dir, 'all.ova']);
  lab.put('zip.ova', readFileSync(at('zip')));
  for (const filename of ['xz.ova', 'zip.ova']) {
    const { path } = fileOf(await alone.heard(await lab.convert(filename)));
    expect(diskIn(path).equals(DISK)).toBe(true);
    lab.clear();
  }
});

/** What a guest would see of the only disk of a plain backup. */
function diskIn(path: string): Buffer {
  execFileSync('tar', [
    '-C',
    alone.world.dir,
    '--wildcards',
    '-xf',
    path,
    '*.qcow2',
    '--transform=s/.*/only/',
  ]);
  return lab.rawOf(at('only'));
}

test('no file of the host is opened because an appliance names it', async () => {
  const secret = at('secret');
  writeFileSync(secret, Buffer.alloc(MiB, 'secret'));
  const text = (rest: string) =>
    `# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType="monolithicFlat"\n${rest}`;
  const flat = text(`RW 2048 FLAT "${secret}" 0\n`);
  const qcow2 = (...options: string[]) => {
    execFileSync('qemu-img', ['create', '-q', '-u', '-f', 'qcow2', ...options, at('hostile'), '1M']);
    return readFileSync(at('hostile'));
  };
  const json = `json:{"driver":"raw","file":{"driver":"file","filename":"${secret}"}}`;
  const images: Record<string, Buffer | string> = {
    flat,
    embedded: streamVmdk(DISK, { header: block => block.fill(0, 12, 20), text: flat }),
    parent: streamVmdk(DISK, {
      text: text(`parentFileNameHint="${secret}"\nRW 8 SPARSE "x"\n`).replace('ffffffff', '12345678'),
    }),
    backing: qcow2('-b', secret, '-F', 'raw'),
    json: qcow2('-b', json, '-F', 'raw'),
    data: qcow2('-o', `data_file=${at('other')},data_file_raw=on`),
  };
  // its data file is made by the program that makes it
  images.data = Buffer.from(
    (images.data as Buffer).toString('latin1').replace(at('other'), secret.padEnd(at('other').length)),
    'latin1',
  );
  for (const [name, bytes] of Object.entries(images)) {
    const href = `${name}.img`;
    const descriptor = ovf(name, [{ href, bytes: DISK.length }], {
      controller,
      images: [{ href: `../secret` }],
    });
    lab.put(`${name}.ova`, ova({ [`${name}.ovf`]: descriptor, [href]: bytes }));
  }
  symlinkSync(secret, join(lab.directory, 'link.img'));
  lab.note('link.img');
  lab.put('link.ovf', ovf('link', [{ href: 'link.img', bytes: MiB, format: RAW }], { controller }));
  lab.put('up.ovf', ovf('up', [{ href: '../../secret', bytes: MiB, format: RAW }], { controller }));
  lab.put('absolute.ovf', ovf('absolute', [{ href: secret, bytes: MiB, format: RAW }], { controller }));
  // a drive that shows one: it stays empty
  lab.put('good.img', disk);
  lab.put(
    'drive.ovf',
    ovf('drive', [{ href: 'good.img', bytes: DISK.length }], {
      controller,
      images: [{ href: secret }, { href: '../../secret' }],
    }),
  );
  const recorder = await Recorder.start([alone.agent.daemon.pid!], at('opened'));
  const refused = [...Object.keys(images).map(name => `${name}.ova`), 'link.ovf', 'up.ovf', 'absolute.ovf'];
  for (const filename of refused) {
    const { error } = await alone.ended(await lab.convert(filename));
    expect([filename, error?.msgKey]).toEqual([
      filename,
      expect.stringMatching(/^(foreign_disk_invalid|ovf_disk_unusable|not_a_file)$/),
    ]);
  }
  await alone.heard(await lab.convert('drive.ovf'));
  const record = await recorder.stop();
  const opened = record.filter(({ call }) => call.startsWith('open')).map(({ path }) => path);
  expect(opened).toContainEqual(expect.stringMatching(/good\.img$/));
  expect(opened.filter(path => path.endsWith('/secret'))).toEqual([]);
});
