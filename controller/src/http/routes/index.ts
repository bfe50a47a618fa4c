/** Every route file of the server. */
import type { RouteModule } from '../app.ts';
import { taskRoutes } from './tasks.ts';

export const ROUTES: readonly RouteModule[] = [taskRoutes];
