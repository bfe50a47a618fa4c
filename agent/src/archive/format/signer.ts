import { createPrivateKey, sign, verify, X509Certificate } from 'node:crypto';
import { serialOf } from '@virtkeep/shared/serials';
import { digestOf, type Manifest } from './manifest.ts';
import { isManifestName, needsDigest } from './names.ts';
import { type ManifestSignature, type SignManifest, signedBytes } from './seal.ts';
import type { JudgeArchive } from './trust.ts';

/** A node's key, its certificate and the authority that issued it, PEM. */
export interface SigningIdentity {
  nodeId: string;
  keyPem: string;
  certificatePem: string;
  caPem: string;
}

export interface SignerOptions {
  /** The identity in use: it changes with each renewal. */
  identity(): SigningIdentity;
  /** Whether others may have the key of a certificate, by its serial as `serialOf` makes it. */
  isRevoked(serial: string): boolean;
}

const URN_NAME = /^URI:urn:virtkeep:node:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

/**
 * Signs manifests with the node's own key, and tells by whom an archive was signed. A certificate that has ended counts, since
 * archives live longer than certificates; one that was taken back does not.
 */
export class ArchiveSigner {
  readonly #options: SignerOptions;

  constructor(options: SignerOptions) {
    this.#options = options;
  }

  readonly sign: SignManifest = bytes => {
    const { keyPem, certificatePem } = this.#options.identity();
    const certificate = new X509Certificate(certificatePem);
    return {
      version: 1,
      algorithm: 'ecdsa-p256-sha256',
      certificate: certificate.raw.toString('base64'),
      value: sign('sha256', bytes, createPrivateKey(keyPem)).toString('base64'),
    };
  };

  /** Judges the newest manifest of an archive: it lists the digests of all others, and says whether the same node signed them. */
  readonly judge: JudgeArchive = ({ manifest, seal }) => {
    const foreign = (reason: string, signer = '') =>
      ({ trust: 'foreign', signer, reason, byOneNode: false, coversContent: false }) as const;
    if (manifest === null || seal === null) return foreign('it was not written by this service');
    if (seal.signature === null) return foreign('it is not signed');
    const { nodeId, caPem } = this.#options.identity();
    const signed = signerOf(seal.signature, seal.textSha256, caPem);
    if ('fault' in signed) return foreign(signed.fault);
    const { signer, serial } = signed;
    if (this.#options.isRevoked(serial)) return foreign('the certificate that signed it was revoked', signer);
    const loose = seal.isBound ? looseMember(manifest) : 'a manifest that it continues';
    if (loose !== undefined) return foreign(`its signature does not stand for ${loose}`, signer);
    // of what was hashed later nobody knows whether it was changed before
    const coversContent = manifest.members.every(
      member => digestOf(member) !== null && member.hashedLater !== true,
    );
    const byOneNode = isOnesOwn(manifest);
    const trust = signer === nodeId && byOneNode ? 'own' : 'fleet';
    return { trust, signer, reason: '', byOneNode, coversContent };
  };
}

/**
 * Whether the node that signed the newest manifest made all of the archive: what another one or nobody wrote does not become its
 * own by an increment, or by its signature alone. As the manifest says of itself:
 *
 * | `sameSigner` | `adopted` | earlier manifests | |
 * |---|---|---|---|
 * | true | – | some | the signer of the last one extended its own archive: its own |
 * | – | – | none | the first state, or all made anew by a conversion of its own: its own |
 * | – | – | some | another node had a part in it: not its own |
 * | – | true | any | it signed what nobody vouched for: not its own, nor any increment of it |
 */
const isOnesOwn = ({ sameSigner, adopted, members }: Manifest): boolean =>
  sameSigner === true || (adopted !== true && !members.some(({ name }) => isManifestName(name)));

/** A member that defines the VM and that the signature says nothing of. */
const looseMember = ({ members }: Manifest): string | undefined =>
  members.find(member => needsDigest(member) && digestOf(member) === null)?.name;

/** The node that made a signature, and the serial of its certificate; or why it cannot be told. */
function signerOf(
  signature: ManifestSignature,
  textSha256: string,
  caPem: string,
): { signer: string; serial: string } | { fault: string } {
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(Buffer.from(signature.certificate, 'base64'));
    const ca = new X509Certificate(caPem);
    if (!certificate.checkIssued(ca) || !certificate.verify(ca.publicKey))
      return { fault: 'it was signed by a node of another controller' };
  } catch {
    return { fault: 'the certificate in its signature cannot be read' };
  }
  const signer = nodeOf(certificate);
  if (signer === undefined) return { fault: 'it was signed by somebody who is no node' };
  const value = Buffer.from(signature.value, 'base64');
  if (!verifies(certificate, textSha256, value))
    return { fault: 'its signature is not that of its manifest: one of them was changed' };
  return { signer, serial: serialOf(certificate.serialNumber) };
}

function verifies(certificate: X509Certificate, textSha256: string, value: Buffer): boolean {
  const { publicKey } = certificate;
  if (publicKey.asymmetricKeyType !== 'ec') return false;
  try {
    return verify('sha256', signedBytes(textSha256), publicKey, value);
  } catch {
    return false;
  }
}

/** The one node that a leaf names. */
function nodeOf(certificate: X509Certificate): string | undefined {
  if (certificate.ca) return undefined;
  const names = (certificate.subjectAltName ?? '').split(', ').filter(name => name.startsWith('URI:'));
  return names.length === 1 ? URN_NAME.exec(names[0]!)?.[1] : undefined;
}
