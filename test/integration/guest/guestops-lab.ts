/** A lab of operations in guests: started as the service starts them, on the runner of a workflow lab. */
import { join } from 'node:path';
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import type { CallContext } from 'nice-grpc-common';
import { type GuestOperationMethods, guestOperations } from '../../../agent/src/grpc/guest-operations.ts';
import type { GuestOperations } from '../../../agent/src/workflows/guest/domain.ts';
import type { Guest } from '../../lab/guest.ts';
import { WorkflowLab } from '../backup/lab.ts';

type Started = keyof GuestOperationMethods;
type RequestOf<M extends Started> = Parameters<GuestOperationMethods[M]>[0];

export class GuestOperationsLab {
  readonly lab: WorkflowLab;
  readonly operations: GuestOperations;
  /** The domains that were said to have changed. */
  readonly changed: string[] = [];

  private constructor(lab: WorkflowLab) {
    this.lab = lab;
    this.operations = {
      libvirt: () => lab.libvirt,
      pools: lab.dependencies.pools,
      otherNodes: lab.dependencies.otherNodes,
      log: lab.dependencies.log,
      scratchDirectory: join(lab.world.dir, 'scratch'),
      // KVM may be there and hang
      forceTcg: true,
      toolsImage: undefined,
      changed: id => void this.changed.push(id),
    };
  }

  static async start(): Promise<GuestOperationsLab> {
    return new GuestOperationsLab(await WorkflowLab.start());
  }

  stop(): Promise<void> {
    return this.lab.stop();
  }

  get service(): GuestOperationMethods {
    return guestOperations(this.lab.runner, this.operations);
  }

  /** Starts an operation and waits for its end. @throws the operation's error as `{ msgKey, message }` */
  async run<M extends Started>(
    method: M,
    guest: Guest,
    request: Omit<RequestOf<M>, 'operationId' | 'domainId' | 'allowNetworkLayers' | '$typeName'>,
  ): Promise<{ operation: Operation; result: Record<string, unknown> }> {
    const { id } = await this.begin(method, guest, request);
    const operation = await this.lab.ended(id);
    return { operation, result: JSON.parse(operation.resultJson) as Record<string, unknown> };
  }

  /** Starts an operation. @throws the error of a start that is refused */
  async begin<M extends Started>(
    method: M,
    guest: Guest,
    request: Omit<RequestOf<M>, 'operationId' | 'domainId' | 'allowNetworkLayers' | '$typeName'>,
  ): Promise<Operation> {
    const own = { operationId: newId(), domainId: await guest.uuid(), allowNetworkLayers: false };
    const full = { ...request, ...own };
    const call = this.service[method] as (request: object, context: CallContext) => Promise<Operation>;
    return call(full, { signal: new AbortController().signal } as CallContext);
  }
}
