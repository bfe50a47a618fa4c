/** The services of the agent: one line each. The rights of their methods stand in grpc/permissions.ts. */
import { NodeServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { OperationServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { nodeService } from './grpc/node-service.ts';
import { operationService } from './grpc/operation-service.ts';
import { type Service, service } from './grpc/server.ts';
import type { Parts } from './parts.ts';

export function agentServices(parts: Parts): Service[] {
  return [
    service(OperationServiceDefinition, operationService(parts.runner)),
    service(NodeServiceDefinition, nodeService(parts)),
  ];
}
