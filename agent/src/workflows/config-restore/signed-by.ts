/** Who vouches for an appliance by its certificate. */
import { fromIoError, hasKey, reasonOf } from '@virtkeep/shared/errors';
import { readForeign } from '@virtkeep/shared/foreign-file';
import type { BackupWarning } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { MiB } from '@virtkeep/shared/units';
import { checkCertificate, type SignedTexts, verifyDescriptor } from '../../appliance/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';

type Trusting = Pick<WorkflowDependencies, 'trustedCaFile'>;

const MAX_AUTHORITIES_BYTES = 4 * MiB;

/**
 * Who may vouch for an appliance, in PEM. Read each time: an administrator may have changed it.
 * @throws VirtkeepError io_failed, file_too_large, not_a_file
 */
export async function authoritiesOf({ trustedCaFile }: Trusting): Promise<string | undefined> {
  if (trustedCaFile === undefined) return undefined;
  try {
    return (await readForeign(trustedCaFile, MAX_AUTHORITIES_BYTES)).toString('latin1');
  } catch (error) {
    throw fromIoError(error, 'reading', trustedCaFile);
  }
}

/**
 * Who vouches for the descriptor, and so for what is shown; the disks are compared by a conversion only. What that would refuse is a warning
 * here.
 */
export async function lookAtSignature(
  signed: SignedTexts,
  dependencies: Trusting,
): Promise<{ signedBy: string | undefined; warnings: BackupWarning[] }> {
  try {
    const pem = await authoritiesOf(dependencies);
    const { signer, warnings } = await checkCertificate(signed, pem === undefined ? undefined : { pem });
    const unvouched = verifyDescriptor(signed);
    return {
      signedBy: unvouched.length > 0 ? undefined : (signer ?? undefined),
      warnings: [...warnings, ...unvouched].map(text => ({ key: 'signature', text })),
    };
  } catch (error) {
    if (!hasKey(error, 'appliance_invalid', 'hash_mismatch', 'io_failed', 'file_too_large', 'not_a_file'))
      throw error;
    return { signedBy: undefined, warnings: [{ key: 'signature_refused', text: reasonOf(error) }] };
  }
}
