import { createHash, randomUUID, X509Certificate } from 'node:crypto';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { keyFiles } from '../keys/keys.ts';
import {
  type CertificateAuthority,
  CONTROLLER_URN,
  ensureCa,
  ensureControllerCertificate,
  ensureServerCertificate,
  issueServerCertificate,
  issueServiceCertificate,
  needsRenewal,
  nodeHost,
  nodeUrn,
  signNodeRequest,
} from './index.ts';
import { type CryptoKeyPair, KEY_ALGORITHM, newKeyPair, x509 } from './x509.ts';

let dir: string;
let ca: CertificateAuthority;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'pki-'));
  ca = await ensureCa(keyFiles(dir));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

async function csr(names: x509.JsonGeneralNames, keys?: CryptoKeyPair): Promise<string> {
  const request = await x509.Pkcs10CertificateRequestGenerator.create({
    name: 'CN=node',
    keys: keys ?? (await newKeyPair()),
    signingAlgorithm: KEY_ALGORITHM,
    extensions: [new x509.SubjectAlternativeNameExtension(names)],
  });
  return request.toString('pem');
}

describe('authority', () => {
  test('is made once, with a private key for its owner only', async () => {
    const again = await ensureCa(keyFiles(dir));
    expect(again.certificatePem).toBe(ca.certificatePem);
    expect((await stat(join(dir, 'pki', 'ca.key'))).mode & 0o777).toBe(0o600);
    const parsed = new X509Certificate(ca.certificatePem);
    expect(parsed.ca).toBe(true);
    expect(createHash('sha256').update(parsed.raw).digest('hex')).toBe(ca.fingerprint);
    expect(Date.parse(parsed.validTo) - Date.now()).toBeGreaterThan(9.9 * 365 * 86_400_000);
  });

  test('two controllers starting at once get one authority', async () => {
    const other = await mkdtemp(join(tmpdir(), 'pki-'));
    const made = await Promise.all([
      ensureCa(keyFiles(other)),
      ensureCa(keyFiles(other)),
      ensureCa(keyFiles(other)),
    ]);
    expect(new Set(made.map(item => item.certificatePem)).size).toBe(1);
    await rm(other, { recursive: true });
  });

  test('issues a server certificate that chains to it', async () => {
    const issued = await issueServerCertificate(ca, ['localhost', '127.0.0.1', '::1']);
    const leaf = new X509Certificate(issued.certificatePem);
    expect(leaf.verify(new X509Certificate(ca.certificatePem).publicKey)).toBe(true);
    expect(leaf.checkHost('localhost')).toBe('localhost');
    expect(leaf.checkIP('127.0.0.1')).toBe('127.0.0.1');
    expect(leaf.checkIP('::1')).toBeDefined();
    expect(leaf.keyUsage).toEqual(['1.3.6.1.5.5.7.3.1']);
    expect(issued.chainPem).toContain(ca.certificatePem.trim());
    expect(needsRenewal(issued.chainPem)).toBe(false);
    expect(needsRenewal(issued.chainPem, Date.now() + 300 * 86_400_000)).toBe(true);
  });
});

describe('stored certificates', () => {
  test('the controller certificate is a client of its role and is kept', async () => {
    const issued = await ensureControllerCertificate(keyFiles(dir), ca);
    const leaf = new X509Certificate(issued.certificatePem);
    expect(leaf.subjectAltName).toContain(`URI:${CONTROLLER_URN}`);
    expect(leaf.keyUsage).toEqual(['1.3.6.1.5.5.7.3.2']);
    expect(await ensureControllerCertificate(keyFiles(dir), ca)).toEqual(issued);
  });

  test('the server certificate is made anew for another name', async () => {
    const first = await ensureServerCertificate(dir, ca, ['a.example']);
    expect(await ensureServerCertificate(dir, ca, ['a.example'])).toEqual(first);
    const second = await ensureServerCertificate(dir, ca, ['a.example', 'b.example']);
    expect(new X509Certificate(second.certificatePem).checkHost('b.example')).toBe('b.example');
  });

  test('a service certificate bears its role', async () => {
    const outDir = join(dir, 'out');
    const written: string[] = [];
    const issued = async (pem: string) => void written.push(pem);
    const asked = { role: 'reader' as const, name: 'metrics', outDir, days: 30, maxDays: 365, issued };
    const files = await issueServiceCertificate(ca, asked);
    expect(await readFile(files.certificatePath, 'utf8')).toContain(written[0]!.trim());
    expect((await stat(files.keyPath)).mode & 0o777).toBe(0o600);
    await expect(issueServiceCertificate(ca, { ...asked, name: '../x' })).rejects.toThrow('cannot be used');
    await expect(issueServiceCertificate(ca, { ...asked, days: 366 })).rejects.toThrow('1 to 365');
    expect(written.length).toBe(1);
  });
});

describe('node requests', () => {
  test('get the names made of the id of the node, whatever they ask for', async () => {
    const me = randomUUID();
    const pem = await signNodeRequest(ca, await csr([{ type: 'dns', value: 'evil.example' }]), me);
    const leaf = new X509Certificate(pem);
    expect(leaf.subjectAltName).toBe(`URI:${nodeUrn(me)}, DNS:${nodeHost(me)}`);
    expect(leaf.subject).toBe(`CN=virtkeep node ${me}`);
    expect(leaf.keyUsage).toEqual(['1.3.6.1.5.5.7.3.1']);
  });

  test('are refused when they ask for a role or another node', async () => {
    for (const value of [CONTROLLER_URN, nodeUrn(randomUUID()), 'URN:virtkeep:role:operator'])
      await expect(
        signNodeRequest(ca, await csr([{ type: 'url', value }]), randomUUID()),
      ).rejects.toMatchObject({
        msgKey: 'invalid_field',
      });
  });

  test('are refused when they are no request, of another key type or tampered with', async () => {
    await expect(signNodeRequest(ca, 'hello', randomUUID())).rejects.toMatchObject({
      msgKey: 'invalid_field',
    });
    const rsa = await crypto.subtle.generateKey(
      {
        name: 'RSASSA-PKCS1-v1_5',
        hash: 'SHA-256',
        modulusLength: 2048,
        publicExponent: new Uint8Array([1, 0, 1]),
      },
      true,
      ['sign', 'verify'],
    );
    await expect(signNodeRequest(ca, await csr([], rsa), randomUUID())).rejects.toMatchObject({
      msgKey: 'invalid_field',
    });
    const der = Buffer.from(new x509.Pkcs10CertificateRequest(await csr([])).rawData);
    der[der.length - 1] = der[der.length - 1]! ^ 1;
    const tampered = x509.PemConverter.encode(der, 'CERTIFICATE REQUEST');
    await expect(signNodeRequest(ca, tampered, randomUUID())).rejects.toMatchObject({
      msgKey: 'invalid_field',
    });
  });
});
