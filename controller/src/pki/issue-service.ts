/** `virtkeep-controller cert issue`: client certificates by which other services may call the agents. */
import { join } from 'node:path';
import { ConfigError } from '@virtkeep/shared/config';
import { writeDurably } from '@virtkeep/shared/durable-file';
import type { ServiceRole } from '@virtkeep/shared/permissions';
import { type CertificateAuthority, issueCertificate } from './authority.ts';
import { roleUrn } from './names.ts';

export interface ServiceCertificateFiles {
  certificatePath: string;
  keyPath: string;
  caPath: string;
}

const NAME = /^[a-z0-9][a-z0-9_.-]{0,62}$/i;

/**
 * Issues a client certificate of a role and writes `<name>.crt` (with the CA below it), `<name>.key` (0600) and
 * `ca.crt` into `outDir`. `issued` writes the certificate down before anything is given out, so that it can be revoked. `days` is 1 to `maxDays`.
 * @throws ConfigError with a text for the terminal.
 */
export async function issueServiceCertificate(
  ca: CertificateAuthority,
  options: {
    role: ServiceRole;
    name: string;
    outDir: string;
    days: number;
    maxDays: number;
    issued: (certificatePem: string) => Promise<void>;
  },
): Promise<ServiceCertificateFiles> {
  if (!NAME.test(options.name))
    throw new ConfigError(`"${options.name}" cannot be used as a name: letters, digits, "._-", at most 63.`);
  const { days, maxDays } = options;
  if (!Number.isInteger(days) || days < 1 || days > maxDays)
    throw new ConfigError(
      `--days must be a whole number from 1 to ${maxDays} (setting agents.service_certificate_max_days).`,
    );
  const issued = await issueCertificate(ca, {
    commonName: options.name,
    names: { urns: [roleUrn(options.role)], hosts: [] },
    use: 'client',
    days,
  });
  await options.issued(issued.certificatePem);
  const files = {
    certificatePath: join(options.outDir, `${options.name}.crt`),
    keyPath: join(options.outDir, `${options.name}.key`),
    caPath: join(options.outDir, 'ca.crt'),
  };
  await writeDurably(files.keyPath, issued.privateKeyPem, 0o600);
  await writeDurably(files.certificatePath, issued.chainPem, 0o644);
  await writeDurably(files.caPath, ca.certificatePem, 0o644);
  return files;
}
