/** Ending a domain: both steps succeed when there is no such domain, or not any more. */
import { type Domain, DomainUndefine, ErrorCode } from '@virtkeep/node-libvirt';
import { isAnswer, isNoDomain } from '../../libvirt/errors.ts';

const UNDEFINE_FLAGS =
  DomainUndefine.MANAGED_SAVE |
  DomainUndefine.SNAPSHOTS_METADATA |
  DomainUndefine.CHECKPOINTS_METADATA |
  DomainUndefine.NVRAM;

/** Pulls the plug. @throws LibvirtError */
export async function destroyIfActive(domain: Domain): Promise<void> {
  try {
    if (await domain.isActive()) await domain.destroy();
  } catch (error) {
    // it ended by itself meanwhile, or was transient
    if (!isNoDomain(error) && !isAnswer(error, ErrorCode.OPERATION_INVALID)) throw error;
  }
}

/** Undefines it with all that libvirt keeps of it: states, saved memory, UEFI variables, TPM. @throws LibvirtError */
export async function undefineWholly(domain: Domain): Promise<void> {
  const withTpm = UNDEFINE_FLAGS | DomainUndefine.TPM;
  try {
    await domain.undefine(withTpm).catch(error => {
      // libvirt before 8.9 knows no flag for the TPM, and removes its state always
      if (isAnswer(error, ErrorCode.INVALID_ARG)) return domain.undefine(UNDEFINE_FLAGS);
      throw error;
    });
  } catch (error) {
    if (!isNoDomain(error)) throw error;
  }
}
