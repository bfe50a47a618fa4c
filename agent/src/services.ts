/** The services of the agent: one line each. The rights of their methods stand in grpc/permissions.ts. */
import { NodeServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { OperationServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { CertificateRenewal } from './enroll/renewal.ts';
import { type Inventory, nodeService } from './grpc/node-service.ts';
import { operationService } from './grpc/operation-service.ts';
import { type Service, service } from './grpc/server.ts';
import type { NodeStatus } from './node-status.ts';
import type { OperationRunner } from './operations/runner.ts';

export interface ServiceParts {
  runner: OperationRunner;
  status: NodeStatus;
  inventory: Inventory;
  renewal: CertificateRenewal;
}

export function agentServices({ runner, status, inventory, renewal }: ServiceParts): Service[] {
  return [
    service(OperationServiceDefinition, operationService(runner)),
    service(NodeServiceDefinition, nodeService({ status, inventory, renewal })),
  ];
}
