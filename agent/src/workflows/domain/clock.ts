/** Telling a guest that was resumed from its memory what time it is. */
import type { Domain } from '@virtkeep/node-libvirt';
import { reasonOf } from '@virtkeep/shared/errors';
import { parseDomain } from '../../domain-xml/index.ts';
import { correctGuestClock } from '../../guest/index.ts';
import type { OperationContext } from '../context.ts';

/** Sets the clock of a resumed guest, if it can be: a warning otherwise. It is worth no failure of the operation. */
export async function setResumedClock(context: OperationContext, domain: Domain): Promise<void> {
  const reason = await whyNot(context, domain).catch(reasonOf);
  if (reason !== null)
    context.warn(`The guest's clock stands where its memory was saved and could not be set: ${reason}.`);
}

async function whyNot({ signal }: OperationContext, domain: Domain): Promise<string | null> {
  const { agentChannel } = parseDomain(await domain.xml(), domain.name);
  return agentChannel === 'absent' ? 'the VM has no channel for an agent' : correctGuestClock(domain, signal);
}
