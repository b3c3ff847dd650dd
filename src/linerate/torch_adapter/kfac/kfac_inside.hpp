// The parts of a KFAC, for the rest of torch_adapter.
#pragma once

#include <functional>

namespace linerate::torch_adapter {

class KFAC;
class Preconditioner;
struct KfacStep;

struct KfacInside {
  /// Its layers' blocks, and what is done with them in a step.
  static Preconditioner& preconditioner(const KFAC& kfac);
  /// The work of step() if a DataParallel shares it among ranks. Empty: this rank is alone.
  static void share(KFAC& kfac, std::function<KfacStep()> step);
};

}  // namespace linerate::torch_adapter
