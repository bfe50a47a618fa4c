/** The shell: who is logged in, the menu, and the page that the address names. */
import { Activity, Component, lazy, type ReactNode, Suspense } from 'react';
import { Route, Routes, useLocation } from 'react-router';
import type { Session } from './api/client.ts';
import { LoginPage } from './pages/login.tsx';
import { Failure, Waiting } from './parts/shown.tsx';
import { ToastProvider } from './parts/toasts.tsx';
import { SessionProvider, useLogin } from './session.tsx';
import { Shell } from './shell.tsx';

const Overview = lazy(() => import('./pages/overview.tsx'));
const Vms = lazy(() => import('./pages/vms.tsx'));
const Vm = lazy(() => import('./pages/vm/page.tsx'));
const Backup = lazy(() => import('./pages/backup.tsx'));
const Restore = lazy(() => import('./pages/restore.tsx'));
const Files = lazy(() => import('./pages/files.tsx'));
const Schedules = lazy(() => import('./pages/schedules/list.tsx'));
const Schedule = lazy(() => import('./pages/schedules/one.tsx'));
const ScheduleEditor = lazy(() => import('./pages/schedules/editor.tsx'));
const Calendar = lazy(() => import('./pages/schedules/calendar.tsx'));
const Tasks = lazy(() => import('./pages/tasks.tsx'));
const Nodes = lazy(() => import('./pages/nodes.tsx'));
const Pools = lazy(() => import('./pages/pools.tsx'));
const Events = lazy(() => import('./pages/events.tsx'));
const Users = lazy(() => import('./pages/users.tsx'));
const User = lazy(() => import('./pages/user.tsx'));
const Account = lazy(() => import('./pages/account.tsx'));
const Notifications = lazy(() => import('./pages/notifications/page.tsx'));
const Audit = lazy(() => import('./pages/audit.tsx'));
const Import = lazy(() => import('./pages/import/page.tsx'));
const Settings = lazy(() => import('./pages/settings.tsx'));
const Certificates = lazy(() => import('./pages/certificates.tsx'));
const Tags = lazy(() => import('./pages/tags.tsx'));
const NotFound = lazy(() => import('./pages/not-found.tsx'));

/** A page that fails, or whose program is gone since the controller was upgraded, leaves the rest usable. */
class Boundary extends Component<{ children: ReactNode }, { error?: unknown }> {
  override state: { error?: unknown } = {};

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    const { error } = this.state;
    // a program that could not be loaded is asked for anew by a new page only
    return error === undefined ? (
      this.props.children
    ) : (
      <Failure error={error} again={() => window.location.reload()} />
    );
  }
}

export function App() {
  const { query, login, lapse, leave, lapsed } = useLogin();
  // who was logged in stays so while the controller does not answer
  if (query.data === undefined)
    return query.isError ? <Failure error={query.error} again={() => void query.refetch()} /> : <Waiting />;
  const session = query.data ?? lapsed;
  return (
    <>
      {query.data === null && <LoginPage login={login} lapsed={lapsed} />}
      {session !== null && (
        // whoever logs in again finds what was written as it was left
        <Activity mode={query.data === null ? 'hidden' : 'visible'}>
          <Pages key={session.user.id} session={session} lapse={lapse} leave={leave} />
        </Activity>
      )}
    </>
  );
}

interface PagesProps {
  session: Session;
  lapse: () => void;
  leave: () => void;
}

function Pages({ session, lapse, leave }: PagesProps) {
  const { pathname } = useLocation();
  return (
    <SessionProvider session={session} lapse={lapse} leave={leave}>
      <ToastProvider>
        <Shell>
          <Boundary key={pathname.split('/')[1]}>
            <Suspense fallback={<Waiting />}>
              <Routes>
                <Route index element={<Overview />} />
                <Route path="vms" element={<Vms />} />
                <Route path="vms/:id" element={<Vm />} />
                <Route path="vms/:id/:tab" element={<Vm />} />
                <Route path="backup" element={<Backup />} />
                <Route path="restore" element={<Restore />} />
                <Route path="import" element={<Import />} />
                <Route path="files" element={<Files />} />
                <Route path="schedules" element={<Schedules />} />
                <Route path="schedules/new" element={<ScheduleEditor />} />
                <Route path="schedules/calendar" element={<Calendar />} />
                <Route path="schedules/:id" element={<Schedule />} />
                <Route path="schedules/:id/edit" element={<ScheduleEditor key="edit" />} />
                <Route path="schedules/:id/:tab" element={<Schedule />} />
                <Route path="tasks" element={<Tasks />} />
                <Route path="nodes" element={<Nodes />} />
                <Route path="pools" element={<Pools />} />
                <Route path="events" element={<Events />} />
                <Route path="audit" element={<Audit />} />
                <Route path="settings" element={<Settings />} />
                <Route path="certificates" element={<Certificates />} />
                <Route path="tags" element={<Tags />} />
                <Route path="users" element={<Users />} />
                <Route path="users/one/:id" element={<User />} />
                <Route path="users/:tab" element={<Users />} />
                <Route path="notifications" element={<Notifications />} />
                <Route path="notifications/:tab" element={<Notifications />} />
                <Route path="account" element={<Account />} />
                <Route path="*" element={<NotFound />} />
              </Routes>
            </Suspense>
          </Boundary>
        </Shell>
      </ToastProvider>
    </SessionProvider>
  );
}
