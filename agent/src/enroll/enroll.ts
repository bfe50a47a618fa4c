import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { getCACertificates } from 'node:tls';
import { ConfigError } from '@virtkeep/shared/config';
import { reasonOf } from '@virtkeep/shared/errors';
import { z } from 'zod';
import { postJson, type Voucher } from './controller-request.ts';
import { type Identity, storeIdentity, toIdentity } from './identity.ts';
import { newKeyRequest } from './key-request.ts';
import { parseToken } from './token.ts';

export interface EnrolOptions {
  /** https://host:port of the controller. */
  controller: string;
  token: string;
  /** Who signed the certificate that the controller shows: a file of authorities, or `system`; undefined: the controller's own authority. */
  ca: string | undefined;
  nodeId: string;
  hostname: string;
  /** Where the controller will reach this agent. */
  address: string;
  port: number;
  /** The setting `tls.dir`. */
  directory: string;
}

const ENROL_PATH = '/api/nodes/enroll/';

const answerSchema = z.object({ node_id: z.guid(), certificate_pem: z.string(), ca_pem: z.string() });
const errorSchema = z.object({ detail: z.string() });

/**
 * Makes the node's key, has its certificate signed by the controller in exchange for the one-time token, and stores
 * both. The contract stands in docs/grpc.md, *Enrolment*. An earlier identity is replaced only at the very end.
 * @throws ConfigError saying what to do.
 */
export async function enrol(options: EnrolOptions): Promise<Identity> {
  const token = parseToken(options.token);
  const url = controllerUrl(options.controller);
  const { keyPem, csrPem } = await newKeyRequest(options.nodeId, options.hostname);
  const { status, body } = await postJson(url, voucherOf(options.ca, token.caFingerprint), {
    token: token.text,
    csr_pem: csrPem,
    node_id: options.nodeId,
    hostname: options.hostname,
    address: options.address,
    port: options.port,
  });
  if (status < 200 || status > 299) {
    const detail = errorSchema.safeParse(body).data?.detail ?? 'it gave no reason';
    throw new ConfigError(`the controller refused the enrolment (HTTP status ${status}): ${detail}`);
  }
  const answer = answerSchema.safeParse(body);
  if (!answer.success)
    throw new ConfigError(`the controller's answer cannot be read: ${answer.error.message}`);
  const identity = checkAnswer(answer.data, keyPem, token.caFingerprint, options.nodeId);
  await storeIdentity(options.directory, identity);
  return identity;
}

/** The node's certificate comes from the authority of the token in either case (`checkAnswer`). */
function voucherOf(ca: string | undefined, fingerprint: string): Voucher {
  if (ca === undefined) return { fingerprint };
  if (ca === 'system') return { authorities: getCACertificates('system') };
  try {
    return { authorities: [readFileSync(ca, 'utf8')] };
  } catch (error) {
    throw new ConfigError(`the authorities in ${ca} cannot be read: ${reasonOf(error)}`);
  }
}

function controllerUrl(text: string): URL {
  if (!URL.canParse(text))
    throw new ConfigError(`"${text}" is not a URL; give https://host:port of the controller`);
  const url = new URL(ENROL_PATH, text);
  if (url.protocol !== 'https:') throw new ConfigError('the controller must be reached by https');
  return url;
}

function checkAnswer(
  answer: z.infer<typeof answerSchema>,
  keyPem: string,
  caFingerprint: string,
  nodeId: string,
): Identity {
  try {
    const identity = toIdentity({ keyPem, certificatePem: answer.certificate_pem, caPem: answer.ca_pem });
    const fingerprint = new X509Certificate(answer.ca_pem).fingerprint256.replaceAll(':', '').toLowerCase();
    if (fingerprint !== caFingerprint) throw new Error('its CA is not the one in the token');
    if (identity.nodeId !== nodeId) throw new Error(`its certificate names another node, ${identity.nodeId}`);
    return identity;
  } catch (error) {
    throw new ConfigError(`the controller's answer cannot be used: ${reasonOf(error)}`);
  }
}
