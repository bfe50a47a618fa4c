import type { OperationServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { OperationRunner } from '../operations/runner.ts';

/** The journal's operations as they are: everything is in the runner. */
export function operationService(runner: OperationRunner): OperationServiceImplementation {
  return {
    get: async request => runner.get(request.id, request.refuseUnknown),
    list: async request => {
      const { operations, sequence } = runner.list(request.running);
      return { operations, sequence: BigInt(sequence) };
    },
    watch: (request, context) =>
      runner.watch(Number(request.afterSequence), request.operationId, context.signal),
    cancel: async request => runner.cancel(request.id),
  };
}
