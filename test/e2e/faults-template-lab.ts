/** A template in an agent's node, cloned by the service: the world of the faults at a clone and at a template's change. */
import { newId } from '@virtkeep/shared/ids';
import type { Guest } from '../lab/guest.ts';
import type { TinyOptions } from '../lab/world.ts';
import { type AgentAlone, lostAnswer } from './agent-alone.ts';

/** The template's first disk has a file system with a file "hello" in it, the second one is empty. */
export const defineTemplate = (alone: AgentAlone, options: TinyOptions = {}): Promise<Guest> =>
  alone.world.defineTiny({
    name: 'golden',
    dataDisks: [{ files: { hello: 'template' } }, { sizeMiB: 16 }],
    metadata: "<virtkeep:domain xmlns:virtkeep='urn:virtkeep:domain:1' template='yes' version='1'/>",
    ...options,
  });

/** Starts a clone; returns the id of its operation. */
export async function startClone(
  alone: AgentAlone,
  template: Guest,
  request: { name?: string; thin: boolean },
): Promise<string> {
  const operationId = newId();
  const domainId = await template.uuid();
  await alone.templates.clone({ operationId, domainId, newDomainId: newId(), ...request }).catch(lostAnswer);
  return operationId;
}
