import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { type CertificateAuthority, LEAF_DAYS } from './authority.ts';
import { nodeHost, nodeUrn } from './names.ts';
import { x509 } from './x509.ts';

const CURVES: readonly string[] = ['P-256', 'P-384'];
/** OID of the subject alternative name extension. */
const SUBJECT_ALT_NAME = '2.5.29.17';

/**
 * Signs a node's certificate request. Only the key is taken from it, after its proof of possession was checked. The
 * names come from the node's id alone: no host name or address that a node tells of itself stands in its certificate,
 * so it can serve as nothing but this node. A request that asks for somebody else's URN is refused.
 * @throws VirtkeepError invalid_field (csr_pem).
 */
export async function signNodeRequest(
  ca: CertificateAuthority,
  csrPem: string,
  nodeId: string,
): Promise<string> {
  const request = parseRequest(csrPem);
  await checkRequest(request, nodeUrn(nodeId));
  return ca.sign({
    publicKey: request.publicKey,
    // Not a host name: some clients compare it when no other name fits.
    commonName: `virtkeep node ${nodeId}`,
    names: { urns: [nodeUrn(nodeId)], hosts: [nodeHost(nodeId)] },
    use: 'server',
    days: LEAF_DAYS,
  });
}

function parseRequest(csrPem: string): x509.Pkcs10CertificateRequest {
  try {
    return new x509.Pkcs10CertificateRequest(csrPem);
  } catch (error) {
    throw refused(`is not a PKCS #10 request in PEM form (${reasonOf(error)})`);
  }
}

async function checkRequest(request: x509.Pkcs10CertificateRequest, urn: string): Promise<void> {
  const { name, namedCurve } = request.publicKey.algorithm as { name: string; namedCurve: string };
  if (!['ECDSA', 'EC'].includes(name) || !CURVES.includes(namedCurve))
    throw refused('must be for an EC key on P-256 or P-384');
  const proven = await request.verify().catch(() => false);
  if (!proven) throw refused('is not signed by its own key');
  const extension = request.getExtension(SUBJECT_ALT_NAME) as x509.SubjectAlternativeNameExtension | null;
  const names = extension?.names.items ?? [];
  const foreign = names.find(item => item.value.toLowerCase().startsWith('urn:') && item.value !== urn);
  if (foreign) throw refused(`asks for the name ${foreign.value}, but the node's is ${urn}`);
}

function refused(reason: string): VirtkeepError {
  return new VirtkeepError('invalid_field', { field: 'csr_pem', reason });
}
