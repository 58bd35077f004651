#include "tier_node/app/options.h"

#include "common/threads/options.h"

namespace terrace::node {

OptionTable make_option_table(NodeOptions* options) {
  OptionTable table("terrace-node", "Computes experts for coordinators: a tier node.");
  table.group("Network");
  table.add("listen", &options->listen, "where coordinators reach this node; port 0: the system's choice")
      .value_name("HOST:PORT");
  table.add("data-port", &options->data_port, "port of the data connections")
      .value_name("PORT")
      .default_text("the port of --listen + 1");
  transport::add_link_options(table, &options->link);
  table.add("metrics", &options->metrics, "serve metrics for Prometheus there, over plain HTTP; loopback alone")
      .value_name("HOST:PORT")
      .default_text("off");
  table.group("Security");
  security::add_security_options(table, &options->security);
  table.group("Work");
  table.add("model", &options->model, "own copy of a model: its experts need not be sent to this node")
      .value_name("FILE")
      .default_text("none");
  table
      .add("model-dir", &options->model_dir,
           "where model files are: --model is looked for in it, and one that lies elsewhere is refused")
      .value_name("DIR")
      .default_text("none; --model says where");
  table.add("ram", &options->ram, "memory for all sessions together: experts, receive windows, scratch")
      .value_name("SIZE")
      .range(kLeastRam, kMostRam)
      .default_text("three quarters of what is available at start");
  kernels::add_card_options(table, &options->card, kernels::MostCards::kOne);
  add_cpu_options(table, &options->threads, &options->cpu_list);
  table
      .add_choice("isa", &options->isa, kernels::kIsaNames,
                  "use exactly this instruction set; refused where the CPU lacks it")
      .default_text("the widest this CPU has");
  add_log_options(table, &options->log);
  return table;
}

}  // namespace terrace::node
