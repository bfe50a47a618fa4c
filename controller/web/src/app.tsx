/** The shell: who is logged in, the menu, and the page that the address names. */
import { lazy, Suspense } from 'react';
import { Route, Routes } from 'react-router';
import { LoginPage } from './pages/login.tsx';
import { Failure, Waiting } from './parts/shown.tsx';
import { ToastProvider } from './parts/toasts.tsx';
import { SessionProvider, useLogin } from './session.tsx';
import { Shell } from './shell.tsx';

const Overview = lazy(() => import('./pages/overview.tsx'));
const Vms = lazy(() => import('./pages/vms.tsx'));
const Vm = lazy(() => import('./pages/vm.tsx'));
const Backup = lazy(() => import('./pages/backup.tsx'));
const Restore = lazy(() => import('./pages/restore.tsx'));
const Files = lazy(() => import('./pages/files.tsx'));
const Schedules = lazy(() => import('./pages/schedules.tsx'));
const Tasks = lazy(() => import('./pages/tasks.tsx'));
const Nodes = lazy(() => import('./pages/nodes.tsx'));
const Pools = lazy(() => import('./pages/pools.tsx'));
const Events = lazy(() => import('./pages/events.tsx'));
const NotFound = lazy(() => import('./pages/not-found.tsx'));

export function App() {
  const { query, login } = useLogin();
  // who was logged in stays so while the controller does not answer
  if (query.data === undefined)
    return query.isError ? <Failure error={query.error} again={() => void query.refetch()} /> : <Waiting />;
  if (query.data === null) return <LoginPage login={login} />;
  return (
    <SessionProvider session={query.data}>
      <ToastProvider>
        <Shell>
          <Suspense fallback={<Waiting />}>
            <Routes>
              <Route index element={<Overview />} />
              <Route path="vms" element={<Vms />} />
              <Route path="vms/:id" element={<Vm />} />
              <Route path="vms/:id/:tab" element={<Vm />} />
              <Route path="backup" element={<Backup />} />
              <Route path="restore" element={<Restore />} />
              <Route path="files" element={<Files />} />
              <Route path="schedules" element={<Schedules />} />
              <Route path="tasks" element={<Tasks />} />
              <Route path="nodes" element={<Nodes />} />
              <Route path="pools" element={<Pools />} />
              <Route path="events" element={<Events />} />
              <Route path="*" element={<NotFound />} />
            </Routes>
          </Suspense>
        </Shell>
      </ToastProvider>
    </SessionProvider>
  );
}
